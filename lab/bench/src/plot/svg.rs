//! Writes SVG elements with escaped text, and the style sheet with its light and its dark
//! colours.

use std::fmt::Write;

use super::Role;

/// Colours of the series, for light and for dark pages: dark enough on white, light enough on
/// black.
const OURS: [(&str, &str); 3] =
    [("#0a5cc2", "#5aa9ff"), ("#0e8a9c", "#45d0e0"), ("#4338ca", "#a5a0ff")];
const PEERS: [(&str, &str); 6] = [
    ("#c2570c", "#ff9d57"),
    ("#1f7a3d", "#5fcf82"),
    ("#a21c74", "#f386cf"),
    ("#8a6d00", "#e3c44a"),
    ("#7c3aed", "#c4a1ff"),
    ("#b3261e", "#ff8a80"),
];
const PAPER: [(&str, &str); 3] =
    [("#6b7280", "#a3aab8"), ("#92785c", "#c9ad8c"), ("#5e7d76", "#94b8af")];

/// The name of a role's class.
pub(super) fn class(role: Role) -> String {
    match role {
        Role::Ours(n) => format!("o{}", n % OURS.len()),
        Role::Peer(n) => format!("p{}", n % PEERS.len()),
        Role::Paper(n) => format!("q{}", n % PAPER.len()),
    }
}

/// True if the markers of a role are hollow: the paper's figures were not measured here.
pub(super) fn is_hollow(role: Role) -> bool {
    matches!(role, Role::Paper(_))
}

/// A document that is being written.
#[derive(Debug)]
pub(super) struct Svg {
    text: String,
}

/// The point by which a text is anchored.
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
             <title>{title}</title>\n<style>\n{}</style>\n\
             <rect class=\"page\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>\n",
            style()
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

    /// A line through points.
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

/// Breaks a text into lines of this width.
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

fn style() -> String {
    let mut css = String::from(
        "text { font-family: system-ui, -apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif; \
         font-size: 12.5px; }\n\
         .title { font-size: 18px; font-weight: 600; }\n\
         .sub, .name { font-size: 13px; }\n\
         .value { font-size: 11px; }\n\
         .grid, .minor, .axis, .ref, .err { fill: none; }\n\
         .grid, .minor { stroke-width: 1; }\n\
         .axis { stroke-width: 1.2; }\n\
         .ref { stroke-width: 1.4; stroke-dasharray: 2 4; stroke-linecap: round; }\n\
         .err { stroke-width: 1.6; stroke-opacity: 0.6; }\n\
         .note { paint-order: stroke; stroke-width: 5; stroke-linejoin: round; }\n\
         .whisker { fill: none; stroke-width: 1.4; stroke-opacity: 0.75; }\n\
         .join { fill: none; stroke-width: 2.2; stroke-linejoin: round; stroke-linecap: round; }\n\
         .dashed { stroke-dasharray: 6 5; }\n\
         .hollow { stroke-width: 2; }\n\
         .pale { fill-opacity: 0.25; stroke-width: 1.5; }\n",
    );
    css.push_str(&colours(|pair| pair.0, ["#ffffff", "#1b1f24", "#57606a", "#d5dae0", "#eceff2"]));
    let dark = colours(|pair| pair.1, ["#0f141b", "#e8edf3", "#a2adba", "#333c47", "#20272f"]);
    let _ = writeln!(css, "@media (prefers-color-scheme: dark) {{\n{dark}}}");
    css
}

/// The style sheet's colours for one kind of page.
fn colours(of: impl Fn((&'static str, &'static str)) -> &'static str, page: [&str; 5]) -> String {
    let [page, ink, quiet, grid, minor] = page;
    let mut css = format!(
        ".page {{ fill: {page}; }}\ntext {{ fill: {ink}; }}\n.sub, .tick, .note {{ fill: {quiet}; }}\n\
         .grid {{ stroke: {grid}; }}\n.minor {{ stroke: {minor}; }}\n\
         .axis, .ref {{ stroke: {quiet}; }}\n.note {{ stroke: {page}; }}\n\
         .whisker {{ stroke: {ink}; }}\n"
    );
    let named = |name: char, pairs: &'static [(&str, &str)]| {
        pairs.iter().enumerate().map(move |(n, pair)| (format!("{name}{n}"), *pair))
    };
    for (name, pair) in named('o', &OURS).chain(named('p', &PEERS)).chain(named('q', &PAPER)) {
        let colour = of(pair);
        let _ = writeln!(
            css,
            ".{name} {{ fill: {colour}; stroke: {colour}; }} .{name}.join, .{name}.err {{ fill: none; }} \
             .{name}.hollow {{ fill: {page}; }}"
        );
    }
    css
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
        let css = style();
        for role in [Role::Ours(0), Role::Ours(7), Role::Peer(4), Role::Peer(5), Role::Paper(2)] {
            assert_eq!(css.matches(&format!(".{} {{", class(role))).count(), 2, "{role:?}");
        }
    }
}
