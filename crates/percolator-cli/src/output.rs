//! Prints the output of commands: data to stdout, all else to stderr.
//!
//! All output goes through a locked handle. A failed write of data is an error of the command, so
//! a reader that closes the pipe ends the command quietly. The output of a command that runs here
//! for another process goes to that process, which prints it.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use clap::ValueEnum;
use comfy_table::{Cell, CellAlignment, Table, TableComponent};
use serde_json::Value;

use crate::environment::{CLICOLOR_FORCE, NO_COLOR};
use crate::exit::{Report, Unprinted};
use crate::log::SERVICE;
use crate::owner::asked;

/// When output is coloured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE overrides both.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Color {
    /// Whether output on stderr is coloured.
    pub(crate) fn on_stderr(self) -> bool {
        let is_forced = |value: OsString| !value.is_empty() && value != "0";
        match self {
            Color::Always => true,
            Color::Never => false,
            Color::Auto if CLICOLOR_FORCE.value().is_some_and(is_forced) => true,
            Color::Auto => {
                let refused = NO_COLOR.value().is_some_and(|value| !value.is_empty());
                !refused && io::stderr().is_terminal()
            }
        }
    }
}

/// Where a command's output goes, and in which form.
#[derive(Debug, Clone, Copy)]
pub struct Out {
    /// Print JSON instead of text.
    pub json: bool,
    /// Print no remarks on stderr.
    pub quiet: bool,
    /// Use colours on stderr.
    pub color: bool,
    /// Log remarks and warnings, as a server does, instead of printing them.
    pub logs: bool,
}

impl Out {
    /// Prints a line of data.
    pub fn line(self, text: &str) -> io::Result<()> {
        self.bytes(text.as_bytes())
    }

    /// Prints data as it is, and a line end.
    pub fn bytes(self, data: &[u8]) -> io::Result<()> {
        to_stdout(&[data, b"\n"])
    }

    /// Whether data goes to a terminal.
    pub(crate) fn is_terminal(self) -> bool {
        match asked::current() {
            Some(asked) => asked.asker().stdout_is_terminal,
            None => io::stdout().is_terminal(),
        }
    }

    /// Prints the command's answer, a JSON document. Characters that a terminal would interpret are
    /// written as `\u` escapes.
    pub fn json(self, value: &Value) -> io::Result<()> {
        is_answered().store(true, Ordering::Relaxed);
        self.line(&escaped(&format!("{value:#}")))
    }

    /// Begins a JSON array, with one element to a line.
    pub fn json_array(self) -> JsonArray {
        JsonArray { elements: 0 }
    }

    /// Prints a table with a line under its header and lines between its columns.
    pub fn table(self, header: &[Column], rows: Vec<Vec<String>>) -> io::Result<()> {
        self.line(&render(header, rows))
    }

    /// Prints a remark, unless the user wants none.
    pub fn note(self, text: &str) {
        if self.logs {
            tracing::info!(target: SERVICE, "{text}");
        } else if !self.quiet {
            to_stderr(format!("{text}\n").as_bytes());
        }
    }

    /// Prints a warning.
    pub fn warn(self, text: &str) {
        if self.logs {
            return tracing::warn!(target: SERVICE, "{text}");
        }
        self.labelled("warning", "1;33", text);
    }

    /// Prints an error, with the next step, on stderr. A user who wants JSON gets a line of JSON on
    /// standard output instead. If the command has printed its answer there, or the output cannot
    /// be written, that user gets the text, too.
    pub(crate) fn error(self, report: &Report) {
        let json = self.json && !is_answered().load(Ordering::Relaxed);
        if json && self.line(&escaped(&report.as_json().to_string())).is_ok() {
            return;
        }
        self.labelled("error", "1;31", &report.what);
        if !report.help.is_empty() {
            self.labelled("  help", "1;36", &report.help);
        }
    }

    fn labelled(self, label: &str, style: &str, text: &str) {
        let line = if self.color {
            format!("\x1b[{style}m{label}:\x1b[0m {text}\n")
        } else {
            format!("{label}: {text}\n")
        };
        to_stderr(line.as_bytes());
    }
}

/// Whether the command has printed its answer as a JSON document. An error is then reported by the
/// exit code and on stderr, because standard output has one document.
fn is_answered() -> Arc<AtomicBool> {
    static OF_THIS_PROCESS: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
    match asked::current() {
        Some(asked) => asked.answered().clone(),
        None => OF_THIS_PROCESS.clone(),
    }
}

/// Writes pieces of data where the command's standard output goes.
fn to_stdout(pieces: &[&[u8]]) -> io::Result<()> {
    if let Some(asked) = asked::current() {
        return asked.stdout(&pieces.concat());
    }
    let mut stdout = io::stdout().lock();
    let written = pieces.iter().try_for_each(|piece| stdout.write_all(piece));
    written.and_then(|()| stdout.flush()).map_err(Unprinted::of)
}

/// Writes text where the command's standard error goes.
pub(crate) fn to_stderr(text: &[u8]) {
    // The reader may have gone, and a remark is not worth failing for.
    let _ = match asked::current() {
        Some(asked) => asked.stderr(text),
        None => io::stderr().lock().write_all(text),
    };
}

/// The header of a table's column.
#[derive(Debug, Clone)]
pub struct Column {
    name: String,
    alignment: CellAlignment,
}

impl Column {
    /// A column of words, aligned to the left.
    pub fn left(name: impl Into<String>) -> Self {
        Column { name: name.into(), alignment: CellAlignment::Left }
    }

    /// A column of numbers, aligned to the right.
    pub fn right(name: impl Into<String>) -> Self {
        Column { name: name.into(), alignment: CellAlignment::Right }
    }
}

fn render(header: &[Column], rows: Vec<Vec<String>>) -> String {
    let cell = |text: &str, column: &Column| Cell::new(text).set_alignment(column.alignment);
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.set_style(TableComponent::VerticalLines, '│');
    table.set_style(TableComponent::HeaderLines, '─');
    table.set_style(TableComponent::MiddleHeaderIntersections, '┼');
    table.set_header(header.iter().map(|column| cell(&column.name, column)));
    for row in rows {
        table.add_row(row.iter().zip(header).map(|(text, column)| cell(text, column)));
    }
    table.trim_fmt()
}

/// A JSON array that is written element by element. An array that an error cuts off ends its line
/// when it is dropped, so that the error has a line of its own.
#[derive(Debug)]
pub struct JsonArray {
    elements: usize,
}

impl JsonArray {
    /// Writes one element.
    pub fn push(&mut self, value: &Value) -> io::Result<()> {
        let before: &[u8] = if self.elements == 0 { b"[\n" } else { b",\n" };
        self.elements += 1;
        to_stdout(&[before, value.to_string().as_bytes()])
    }

    /// Writes the end of the array.
    pub fn finish(mut self) -> io::Result<()> {
        let end: &[u8] = if self.elements == 0 { b"[]\n" } else { b"\n]\n" };
        self.elements = 0;
        is_answered().store(true, Ordering::Relaxed);
        to_stdout(&[end])
    }
}

impl Drop for JsonArray {
    fn drop(&mut self) {
        if self.elements > 0 {
            // The command reports the error that cut the array off.
            let _ = to_stdout(&[b"\n"]);
        }
    }
}

/// Whether a terminal would interpret a character instead of showing it. Such are control
/// characters, and characters that turn the direction of writing or end a line.
fn is_obeyed(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns || matches!(c, '\u{2028}'..='\u{202e}')
}

/// Makes text from elsewhere safe for a terminal. Each character that a terminal would interpret
/// becomes the replacement character.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if is_obeyed(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Escapes in JSON every character that a terminal would interpret, except the line ends between
/// values.
fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\n' => out.push(c),
            // All of these characters stand in strings, and each fits the sixteen bits of an
            // escape.
            c if is_obeyed(c) => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// Groups the digits of a number by thousands: `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_lines_and_no_blanks_at_the_end() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let header = [Column::right("ts"), Column::left("bal:write")];
        let table = render(&header, vec![row(["12", "data @ 7"]), row(["7", ""])]);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines, [" ts │ bal:write", "────┼───────────", " 12 │ data @ 7", "  7 │"]);
    }

    #[test]
    fn terminals_get_nothing_to_obey() {
        let hostile = "\u{1b}[31mred\u{7}\u{9b}2J\u{202e}txt\u{2066}\u{7f}\r\n\t";
        let shown = printable(hostile);
        assert!(!shown.chars().any(is_obeyed), "{shown:?}");
        assert!(shown.contains("[31mred") && shown.contains("2J"), "{shown:?}");
        assert_eq!(printable("naïve 設定 😀"), "naïve 設定 😀");
        let json = serde_json::json!({ "title": hostile, "other": ["設定"] });
        let text = escaped(&format!("{json:#}"));
        assert!(!text.chars().any(|c| c != '\n' && is_obeyed(c)), "{text:?}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), json);
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(1_234), "1,234");
        assert_eq!(grouped(123_456), "123,456");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
