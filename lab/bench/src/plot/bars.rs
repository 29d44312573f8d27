//! Draws groups of bars.

use super::chart::{LEFT, RIGHT, WIDTH, bottom, error_bar, heading, references, second_axis};
use super::scale::{Laid, format};
use super::svg::{Hold, Svg, class, is_hollow, width_of, wrapped};
use super::{Bar, BarSeries, Bars, Line, Unit};

/// The share of a group's width that its bars take.
const FILLED: f64 = 0.8;
/// The widest bar, in pixels.
const BAR_MAX: f64 = 64.0;
/// Size of the letters on bars and below groups, in pixels.
const LETTER: f64 = 11.0;

impl Bars {
    /// The plot as an SVG document.
    pub(crate) fn svg(&self) -> String {
        let mut svg = Svg::new(WIDTH, super::chart::HEIGHT, &self.title);
        let top = heading(&mut svg, &self.title, &self.subtitle);
        let bars = self.series.iter().flat_map(|series| series.values.iter().flatten());
        let highest = |bar: &Bar| {
            let (low, high) = bar.spread.unwrap_or((bar.value, bar.value));
            [low, bar.value, high]
        };
        let marks = self.references.iter().filter_map(|reference| match reference.line {
            Line::Y(y) => Some(y),
            Line::X(_) => None,
        });
        let y = Laid::new(&self.y, bars.flat_map(highest).chain(marks), bottom(), top);
        second_axis(&mut svg, &y, &self.y.label, top);
        let place = (RIGHT - LEFT) / self.groups.len().max(1) as f64;
        let shown = |group: usize| {
            let bar = move |series: &BarSeries| *series.values.get(group)?;
            self.series.iter().filter_map(move |series| Some((series, bar(series)?)))
        };
        let most = (0..self.groups.len()).map(|group| shown(group).count()).max().unwrap_or(0);
        let width = (place * FILLED / most.max(1) as f64).min(BAR_MAX);
        for (group, name) in self.groups.iter().enumerate() {
            let middle = LEFT + place * (group as f64 + 0.5);
            for (line, text) in (0..).zip(wrapped(name, 12.5, place - 6.0)) {
                let at = (middle, bottom() + 19.0 + 15.0 * f64::from(line));
                svg.text("tick", at, Hold::Middle, &text);
            }
            let first = middle - width * shown(group).count() as f64 / 2.0;
            for (i, (series, bar)) in shown(group).enumerate() {
                let told = format!("{}, {name}: ", series.name);
                let from = first + width * i as f64;
                self.draw(&mut svg, (&told, &look(series.role)), &bar, &y, (from, width));
            }
        }
        references(&mut svg, &self.references, None, &y, top);
        let mut row = top + 8.0;
        for series in &self.series {
            svg.bar(&look(series.role), (RIGHT + 28.0, row - 7.0), (26.0, 14.0), &series.name);
            for line in wrapped(&series.name, 13.0, WIDTH - RIGHT - 72.0) {
                svg.text("name", (RIGHT + 64.0, row + 4.4), Hold::Start, &line);
                row += 18.0;
            }
            row += 8.0;
        }
        svg.finish()
    }

    fn draw(
        &self,
        svg: &mut Svg,
        (told, look): (&str, &str),
        bar: &Bar,
        y: &Laid,
        (from, width): (f64, f64),
    ) {
        let Some(end) = y.pixel(bar.value) else { return };
        let base = y.clamped(0_f64.max(y.low()));
        let text = format(bar.value, self.y.unit);
        let (low, high) = (end.min(base), end.max(base));
        let told = format!("{told}{text}");
        svg.bar(look, (from + 1.5, low), (width - 3.0, high - low), &told);
        let middle = from + width / 2.0;
        let mut above = low;
        if let Some((low, high)) = bar.spread {
            let (low, high) = (y.clamped(low), y.clamped(high));
            // In the text's colour, because half of it lies on the bar.
            error_bar(svg, "whisker", middle, low, high);
            above = above.min(high);
        }
        let fits = |text: &String| width_of(text, LETTER) <= width;
        let is_long = self.y.unit == Unit::Plain && bar.value >= 1000.0;
        let short = is_long.then(|| short(bar.value));
        if let Some(text) = Some(text).filter(fits).or(short.filter(fits)) {
            svg.text("value", (middle, above - 5.0), Hold::Middle, &text);
        }
    }
}

/// A number with as few letters as a comparison needs: `85k`.
fn short(value: f64) -> String {
    match value / 1000.0 {
        thousands if thousands >= 999.5 => format!("{:.1}M", thousands / 1000.0),
        thousands if thousands >= 9.95 => format!("{thousands:.0}k"),
        thousands => format!("{thousands:.1}k"),
    }
}

/// The classes of a bar. The paper's bars are pale.
fn look(role: super::Role) -> String {
    if is_hollow(role) { format!("{} pale", class(role)) } else { class(role) }
}

#[cfg(test)]
mod tests {
    use crate::plot::{Axis, Reference, Role};

    use super::*;

    #[test]
    fn numbers_are_shortened_to_their_bars() {
        for (value, told) in [
            (1_000.0, "1.0k"),
            (9_949.0, "9.9k"),
            (9_960.0, "10k"),
            (85_112.0, "85k"),
            (999_499.0, "999k"),
            (999_600.0, "1.0M"),
            (2_340_000.0, "2.3M"),
        ] {
            assert_eq!(short(value), told);
        }
        let of = |groups: usize| {
            let values = vec![Some(Bar::of(85_112.0)); groups];
            let series = BarSeries { name: "ours".into(), role: Role::Ours(0), values };
            let groups = vec![String::new(); groups];
            let y = Axis::linear("cells", Unit::Plain);
            let (title, subtitle, references) = ("t".into(), String::new(), Vec::new());
            Bars { title, subtitle, y, groups, series: vec![series], references }.svg()
        };
        assert!(of(2).contains(">85,112</text>"));
        let narrow = of(16);
        assert!(narrow.contains(">85k</text>") && !narrow.contains(">85,112</text>"));
        assert!(!of(60).contains(">85k</text>"), "no room for that either");
    }

    #[test]
    fn each_group_has_a_bar_of_each_series_that_has_one() {
        let series = |name: &str, role, values| BarSeries { name: name.into(), role, values };
        let bar = |value| Some(Bar::of(value));
        let text = Bars {
            title: "t".into(),
            subtitle: String::new(),
            y: Axis::linear("ratio", Unit::Plain),
            groups: vec!["read".into(), "write".into()],
            series: vec![
                series(
                    "ours",
                    Role::Ours(0),
                    vec![bar(0.9), bar(0.4).map(|b| b.between(0.3, 0.5))],
                ),
                series("paper", Role::Paper(0), vec![None, bar(0.23)]),
            ],
            references: vec![Reference::y(0.6, "goal")],
        }
        .svg();
        for told in ["ours, read: 0.9", "ours, write: 0.4", "paper, write: 0.23"] {
            assert_eq!(text.matches(&format!("<title>{told}</title>")).count(), 1, "{told}");
        }
        assert!(!text.contains("paper, read"));
        assert!(text.contains(">goal</text>") && !text.contains("NaN"));
    }
}
