//! Writes SVG elements with escaped text.

use std::fmt::Write;

use super::Role;

/// The look of all classes, in colours for light and for dark pages: dark enough on white, light
/// enough on black.
const STYLE: &str = include_str!("style.css");
/// Number of colours for each kind of series.
const OURS: usize = 3;
const PEERS: usize = 6;
const PAPER: usize = 3;

pub(super) fn class(role: Role) -> String {
    match role {
        Role::Ours(n) => format!("o{}", n % OURS),
        Role::Peer(n) => format!("p{}", n % PEERS),
        Role::Paper(n) => format!("q{}", n % PAPER),
    }
}

/// True if the markers of a role are hollow: the paper's figures were not measured here.
pub(super) fn is_hollow(role: Role) -> bool {
    matches!(role, Role::Paper(_))
}

#[derive(Debug)]
pub(super) struct Svg {
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    Start,
    Middle,
    End,
}

impl Svg {
    /// Begins a document of this size. Screen readers read the title aloud.
    pub(super) fn new(width: f64, height: f64, title: &str) -> Self {
        let title = escape(title);
        let mut svg = Svg { text: String::with_capacity(16 << 10) };
        svg.put(&format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{title}\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n\
             <rect class=\"page\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>\n"
        ));
        svg
    }

    pub(super) fn finish(mut self) -> String {
        self.put("</svg>\n");
        self.text
    }

    fn put(&mut self, text: &str) {
        self.text.push_str(text);
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.put(&format!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>\n"
        ));
    }

    pub(super) fn text(&mut self, class: &str, at: (f64, f64), hold: Hold, text: &str) {
        self.turned_text(class, at, hold, text, 0);
    }

    pub(super) fn turned_text(
        &mut self,
        class: &str,
        (x, y): (f64, f64),
        hold: Hold,
        text: &str,
        degrees: i32,
    ) {
        let anchor = match hold {
            Hold::Start => "start",
            Hold::Middle => "middle",
            Hold::End => "end",
        };
        let turn = match degrees {
            0 => String::new(),
            degrees => format!(" transform=\"rotate({degrees} {x:.1} {y:.1})\""),
        };
        let text = escape(text);
        self.put(&format!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{turn}>{text}</text>\n"
        ));
    }

    pub(super) fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        let mut d = String::new();
        for (i, (x, y)) in points.iter().enumerate() {
            let _ = write!(d, "{}{x:.1} {y:.1}", if i == 0 { 'M' } else { 'L' });
        }
        self.put(&format!("<path class=\"{class}\" d=\"{d}\"/>\n"));
    }

    /// Draws a rectangle that shows its value under the pointer.
    pub(super) fn bar(&mut self, class: &str, (x, y): (f64, f64), size: (f64, f64), told: &str) {
        let ((width, height), told) = (size, escape(told));
        self.put(&format!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\" rx=\"1.5\"><title>{told}</title></rect>\n"
        ));
    }

    /// Draws a marker of one of several forms, which shows its value under the pointer.
    pub(super) fn marker(&mut self, class: &str, form: usize, (x, y): (f64, f64), told: &str) {
        let told = match told {
            "" => String::new(),
            told => format!("<title>{}</title>", escape(told)),
        };
        let shape = |d: String| format!("<path class=\"{class}\" d=\"{d}\">{told}</path>\n");
        let element = match form % 4 {
            0 => format!(
                "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.2\">{told}</circle>\n"
            ),
            1 => shape(format!("M{:.1} {:.1}h7.6v7.6h-7.6z", x - 3.8, y - 3.8)),
            2 => shape(format!("M{x:.1} {:.1}l4.9 8.4h-9.8z", y - 5.2)),
            _ => shape(format!("M{x:.1} {:.1}l5.2 5.2l-5.2 5.2l-5.2 -5.2z", y - 5.2)),
        };
        self.put(&element);
    }
}

/// The approximate width of a text: no font is available here, and readers have different ones.
pub(super) fn width_of(text: &str, size: f64) -> f64 {
    let narrow = |c: char| "iIl.,:;'|!()[]jtfr1 ".contains(c);
    let share = |c| if narrow(c) { 0.38 } else { 0.63 };
    text.chars().map(share).sum::<f64>() * size
}

pub(super) fn wrapped(text: &str, size: f64, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width_of(line, size) + width_of(word, size) + size * 0.3 <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // XML does not allow control characters.
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_cannot_break_the_document() {
        let mut svg = Svg::new(10.0, 10.0, "a < b & \"c\"");
        svg.text("tick", (1.0, 2.0), Hold::End, "x\u{1}<script>");
        let text = svg.finish();
        assert!(text.contains("aria-label=\"a &lt; b &amp; &quot;c&quot;\""));
        assert!(text.contains(">x &lt;script&gt;</text>") && !text.contains("<script>"));
    }

    #[test]
    fn long_texts_are_wrapped_and_none_is_lost() {
        let text = "one two three four five six seven eight nine ten";
        let lines = wrapped(text, 13.0, 100.0);
        assert!(lines.len() > 2 && lines.iter().all(|line| width_of(line, 13.0) <= 100.0));
        assert_eq!(lines.join(" "), text);
        assert_eq!(wrapped("", 13.0, 100.0).len(), 0);
    }

    #[test]
    fn every_role_has_a_colour_on_both_kinds_of_page() {
        for role in [Role::Ours(0), Role::Ours(7), Role::Peer(4), Role::Peer(5), Role::Paper(2)] {
            assert_eq!(STYLE.matches(&format!(".{} {{", class(role))).count(), 2, "{role:?}");
        }
    }
}
