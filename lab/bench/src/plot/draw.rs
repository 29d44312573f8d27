//! Draws lines, points, error bars and groups of bars, and the frame and legend around them.

use super::scale::{Laid, format};
use super::svg::{Hold, Svg, class, is_hollow, width_of, wrapped};
use super::{Across, Form, Line, Plot, Point, Reference, Role, Series, Unit};
use crate::statistics::Estimate;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 520.0;
/// The margin at the left and the right, in pixels.
const MARGIN: f64 = 22.0;
const LEFT: f64 = 92.0;
const RIGHT: f64 = 650.0;
const BOTTOM: f64 = HEIGHT - 62.0;
const LEGEND: f64 = RIGHT + 28.0;
const LINE: f64 = 18.0;
/// Height of a line of labels above the plot.
const REFERENCE_LINE: f64 = 16.0;
/// Size of the letters in legend and subtitle, in pixels.
const LETTER: f64 = 13.0;
/// Size of the letters on bars, in pixels.
const BAR_LETTER: f64 = 11.0;
/// The share of a group's width that its bars take.
const FILLED: f64 = 0.8;
const BAR_MAX: f64 = 64.0;

impl Plot {
    pub(crate) fn svg(&self) -> String {
        let mut svg = Svg::new(WIDTH, HEIGHT, &self.title);
        let mut top = heading(&mut svg, &self.title, &self.subtitle);
        let points = || self.series.iter().flat_map(|series| &series.points);
        let marks = |of: fn(&Line) -> Option<f64>| {
            self.references.iter().filter_map(move |reference| of(&reference.line))
        };
        let x = match &self.across {
            Across::Groups(_) => None,
            Across::Axis(axis) => {
                let marks = marks(|line| if let Line::X(x) = line { Some(*x) } else { None });
                let all = points().map(|point| point.x).chain(marks);
                Some((Laid::new(axis, all, LEFT, RIGHT), axis))
            }
        };
        let stacked = x.as_ref().map(|(x, _)| stacked(&self.references, x)).unwrap_or_default();
        let rows = stacked.iter().map(|label| label.row + 1).max().unwrap_or(1);
        top += REFERENCE_LINE * (rows - 1) as f64;
        let spread = |point: &Point| [point.y.low, point.y.median, point.y.high];
        let marks = marks(|line| if let Line::Y(y) = line { Some(*y) } else { None });
        let y = Laid::new(&self.y, points().flat_map(spread).chain(marks), BOTTOM, top);
        if let Some((x, axis)) = &x {
            first_axis(&mut svg, x, &axis.label, top);
        }
        second_axis(&mut svg, &y, &self.y.label, top);
        if let Across::Groups(groups) = &self.across {
            self.draw_groups(&mut svg, groups, &y);
        }
        references(&mut svg, &self.references, stacked, &y, top);
        if let Some((x, axis)) = &x {
            if points().next().is_none() {
                let at = (f64::midpoint(LEFT, RIGHT), f64::midpoint(top, BOTTOM));
                svg.text("note", at, Hold::Middle, "nothing was measured");
            }
            self.series.iter().for_each(|series| self.draw(&mut svg, series, (x, axis.unit), &y));
        }
        legend(&mut svg, &self.series, top);
        svg.finish()
    }

    fn draw(&self, svg: &mut Svg, series: &Series, (x, unit): (&Laid, Unit), y: &Laid) {
        let role = class(series.role);
        let place = |point: &Point| Some((*point, (x.pixel(point.x)?, y.pixel(point.y.median)?)));
        let placed: Vec<(Point, (f64, f64))> = series.points.iter().filter_map(place).collect();
        let line: Vec<(f64, f64)> = placed.iter().map(|(_, at)| *at).collect();
        join(svg, series, &line);
        for (point, (at, _)) in &placed {
            error_bar(svg, &format!("{role} err"), *at, point.y, y);
        }
        for (point, at) in &placed {
            let (value, place) = (format(point.y.median, self.y.unit), format(point.x, unit));
            let told = format!("{}: {value} at {place}", series.name);
            svg.marker(&look(series.role, "hollow"), marker(series.role), *at, &told);
        }
    }

    fn draw_groups(&self, svg: &mut Svg, groups: &[String], y: &Laid) {
        let place = (RIGHT - LEFT) / groups.len().max(1) as f64;
        let shown = |group: usize| {
            let is_here = move |point: &&Point| point.x == group as f64;
            let bar = move |series: &'_ Series| series.points.iter().find(is_here).copied();
            self.series.iter().filter_map(move |series| Some((series, bar(series)?)))
        };
        let most = (0..groups.len()).map(|group| shown(group).count()).max().unwrap_or(0);
        let width = (place * FILLED / most.max(1) as f64).min(BAR_MAX);
        for (group, name) in groups.iter().enumerate() {
            let middle = LEFT + place * (group as f64 + 0.5);
            for (line, text) in (0..).zip(wrapped(name, 12.5, place - 6.0)) {
                let at = (middle, BOTTOM + 19.0 + 15.0 * f64::from(line));
                svg.text("tick", at, Hold::Middle, &text);
            }
            let first = middle - width * shown(group).count() as f64 / 2.0;
            for (i, (series, bar)) in shown(group).enumerate() {
                let told = format!("{}, {name}: ", series.name);
                let from = first + width * i as f64;
                self.draw_bar(svg, (&told, series.role), bar.y, y, (from, width));
            }
        }
    }

    fn draw_bar(
        &self,
        svg: &mut Svg,
        (told, role): (&str, Role),
        bar: Estimate,
        y: &Laid,
        (from, width): (f64, f64),
    ) {
        let Some(end) = y.pixel(bar.median) else { return };
        let base = y.clamped(0_f64.max(y.low));
        let text = format(bar.median, self.y.unit);
        let (low, high) = (end.min(base), end.max(base));
        let told = format!("{told}{text}");
        svg.bar(&look(role, "pale"), (from + 1.5, low), (width - 3.0, high - low), &told);
        let middle = from + width / 2.0;
        // In the text's colour, because half of it lies on the bar.
        let above = error_bar(svg, "whisker", middle, bar, y).map_or(low, |end| low.min(end));
        let fits = |text: &String| width_of(text, BAR_LETTER) <= width;
        let is_long = self.y.unit == Unit::Plain && bar.median >= 1000.0;
        let short = is_long.then(|| short(bar.median));
        if let Some(text) = Some(text).filter(fits).or(short.filter(fits)) {
            svg.text("value", (middle, above - 5.0), Hold::Middle, &text);
        }
    }
}

/// Draws title and subtitle, and returns the top of the axes' area.
fn heading(svg: &mut Svg, title: &str, subtitle: &str) -> f64 {
    svg.text("title", (MARGIN, 33.0), Hold::Start, title);
    let mut y = 36.0;
    for line in wrapped(subtitle, LETTER, WIDTH - 2.0 * MARGIN) {
        y += LINE;
        svg.text("sub", (MARGIN, y), Hold::Start, &line);
    }
    y + 26.0
}

/// Draws the first axis: lines upwards, labels below, and its name.
fn first_axis(svg: &mut Svg, x: &Laid, label: &str, top: f64) {
    for tick in x.ticks() {
        let Some(at) = x.pixel(tick.at) else { continue };
        let line = if tick.label.is_some() { "grid" } else { "minor" };
        svg.line(line, (at, top), (at, BOTTOM));
        if let Some(label) = tick.label {
            svg.text("tick", (at, BOTTOM + 19.0), Hold::Middle, &label);
        }
    }
    svg.text("name", (f64::midpoint(LEFT, RIGHT), BOTTOM + 44.0), Hold::Middle, label);
}

/// Draws the second axis: lines across, labels at the left, and its name.
fn second_axis(svg: &mut Svg, y: &Laid, label: &str, top: f64) {
    for tick in y.ticks() {
        let Some(at) = y.pixel(tick.at) else { continue };
        let line = if tick.label.is_some() { "grid" } else { "minor" };
        svg.line(line, (LEFT, at), (RIGHT, at));
        if let Some(label) = tick.label {
            svg.text("tick", (LEFT - 9.0, at + 4.4), Hold::End, &label);
        }
    }
    svg.line("axis", (LEFT, BOTTOM), (RIGHT, BOTTOM));
    svg.line("axis", (LEFT, top), (LEFT, BOTTOM));
    let middle = f64::midpoint(top, BOTTOM);
    svg.turned_text("name", (26.0, middle), Hold::Middle, label, -90);
}

fn references(
    svg: &mut Svg,
    references: &[Reference],
    stacked: Vec<Stacked<'_>>,
    y: &Laid,
    top: f64,
) {
    // All lines come before all labels, because labels hide the lines behind them.
    let mut labels = Vec::new();
    for Reference { line, label } in references {
        let Line::Y(value) = line else { continue };
        let Some(at) = y.pixel(*value) else { continue };
        svg.line("ref", (LEFT, at), (RIGHT, at));
        labels.push(((RIGHT - 4.0, at - 5.0), Hold::End, label.as_str()));
    }
    for Stacked { at, middle, row, label, .. } in stacked {
        let y = top - 6.0 - REFERENCE_LINE * row as f64;
        svg.line("ref", (at, y + 2.0), (at, BOTTOM));
        labels.push(((middle, y), Hold::Middle, label));
    }
    for (at, hold, label) in labels {
        svg.text("note", at, hold, label);
    }
}

/// The label of a vertical line, above the plot.
struct Stacked<'a> {
    label: &'a str,
    /// The positions of the line, and of the label's middle.
    at: f64,
    middle: f64,
    half: f64,
    /// The label's row, counted from the plot upwards.
    row: usize,
}

/// Places the labels of vertical lines, each in the lowest row where it overlaps no other.
fn stacked<'a>(references: &'a [Reference], x: &Laid) -> Vec<Stacked<'a>> {
    let mut labels: Vec<Stacked<'a>> = Vec::new();
    for Reference { line, label } in references {
        let Line::X(value) = line else { continue };
        let Some(at) = x.pixel(*value) else { continue };
        let half = width_of(label, 12.5) / 2.0 + 4.0;
        let middle = at.min(RIGHT - half);
        let meets = |other: &Stacked<'_>| (other.middle - middle).abs() < other.half + half;
        let is_free = |row: &usize| labels.iter().all(|other| other.row != *row || !meets(other));
        let row = (0..=labels.len()).find(is_free).unwrap_or(labels.len());
        labels.push(Stacked { label, at, middle, half, row });
    }
    labels
}

/// Draws the spread of a value, if it has one: a vertical line with a short line across each
/// end. Returns its upper end.
fn error_bar(svg: &mut Svg, class: &str, x: f64, of: Estimate, y: &Laid) -> Option<f64> {
    if of.low >= of.high {
        return None;
    }
    let (low, high) = (y.clamped(of.low), y.clamped(of.high));
    svg.line(class, (x, low), (x, high));
    for y in [low, high] {
        svg.line(class, (x - 4.0, y), (x + 4.0, y));
    }
    Some(high)
}

/// Draws the line of a series, if it has one.
fn join(svg: &mut Svg, series: &Series, points: &[(f64, f64)]) {
    let role = class(series.role);
    match series.form {
        Form::Solid => svg.path(&format!("{role} join"), points),
        Form::Dashed => svg.path(&format!("{role} join dashed"), points),
        Form::Points | Form::Bars => {}
    }
}

fn legend(svg: &mut Svg, all: &[Series], top: f64) {
    let mut y = top + 8.0;
    for series in all {
        if series.form == Form::Bars {
            let at = (LEGEND, y - 7.0);
            svg.bar(&look(series.role, "pale"), at, (26.0, 14.0), &series.name);
        } else {
            join(svg, series, &[(LEGEND, y), (LEGEND + 26.0, y)]);
            let (look, at) = (look(series.role, "hollow"), (LEGEND + 13.0, y));
            svg.marker(&look, marker(series.role), at, "");
        }
        for line in wrapped(&series.name, LETTER, WIDTH - LEGEND - 36.0 - 8.0) {
            svg.text("name", (LEGEND + 36.0, y + 4.4), Hold::Start, &line);
            y += LINE;
        }
        y += 8.0;
    }
}

/// The classes of a marker or a bar. The paper's markers are hollow, and its bars are pale.
fn look(role: Role, of_paper: &str) -> String {
    if is_hollow(role) { format!("{} {of_paper}", class(role)) } else { class(role) }
}

fn marker(role: Role) -> usize {
    match role {
        Role::Ours(n) | Role::Paper(n) => n,
        Role::Peer(n) => n + 1,
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

#[cfg(test)]
mod tests {
    use crate::plot::Axis;

    use super::*;

    fn plot() -> Plot {
        let (x, y) = (Axis::linear("rate", Unit::Percent), Axis::log("delay", Unit::Seconds));
        Plot::over(x, y, "t", "s").mark(Line::X(40.0), "knee").mark(Line::Y(1.0), "goal")
    }

    fn groups(names: &[&str]) -> Plot {
        Plot::groups(names.iter().copied(), Axis::linear("cells", Unit::Plain), "t", "")
    }

    #[test]
    fn what_an_axis_cannot_show_is_left_out() {
        let points = [(1.0, 0.01), (2.0, 0.0), (3.0, f64::NAN), (f64::INFINITY, 1.0), (4.0, 100.0)];
        let points = points.map(|(x, y)| Point::at(x, y)).to_vec();
        let text = plot().line("ours", Role::Ours(0), points).svg();
        // Two points, and the marker of the legend.
        assert_eq!(text.matches("<circle").count(), 3, "{text}");
        assert!(text.contains("ours: 100 s at 4 %"));
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }

    #[test]
    fn error_bars_end_at_the_axes() {
        let points = vec![Point::at(1.0, 1.0).between(0.0, f64::INFINITY), Point::at(2.0, 100.0)];
        let text = plot().points("ours", Role::Ours(0), points).svg();
        assert_eq!(text.matches("class=\"o0 err\"").count(), 3);
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }

    #[test]
    fn labels_that_would_meet_stand_above_each_other() {
        let references = [10.0, 18.0, 26.0, 34.0]
            .map(|at| Reference { line: Line::X(at), label: "they are killed".into() });
        let x = Laid::new(&Axis::linear("time", Unit::Plain), [0.0, 60.0].into_iter(), LEFT, RIGHT);
        let labels = stacked(&references, &x);
        // Each label overlaps only the next one.
        let apart = labels[1].middle - labels[0].middle;
        assert!((apart..2.0 * apart).contains(&(2.0 * labels[0].half)), "{apart}");
        assert_eq!(labels.iter().map(|label| label.row).collect::<Vec<_>>(), [0, 1, 0, 1]);
    }

    #[test]
    fn an_empty_chart_says_so() {
        assert!(plot().svg().contains("nothing was measured"));
    }

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
        let of = |count: usize| {
            let values = vec![Some(Estimate::alone(85_112.0)); count];
            groups(&vec![""; count]).bars("ours", Role::Ours(0), values).svg()
        };
        assert!(of(2).contains(">85,112</text>"));
        let narrow = of(16);
        assert!(narrow.contains(">85k</text>") && !narrow.contains(">85,112</text>"));
        assert!(!of(60).contains(">85k</text>"), "no room for that either");
    }

    #[test]
    fn each_group_has_a_bar_of_each_series_that_has_one() {
        let spread = Estimate { median: 0.4, low: 0.3, high: 0.5 };
        let text = groups(&["read", "write"])
            .bars("ours", Role::Ours(0), [Some(Estimate::alone(0.9)), Some(spread)])
            .bars("paper", Role::Paper(0), [None, Some(Estimate::alone(0.23))])
            .mark(Line::Y(0.6), "goal")
            .svg();
        for told in ["ours, read: 0.9", "ours, write: 0.4", "paper, write: 0.23"] {
            assert_eq!(text.matches(&format!("<title>{told}</title>")).count(), 1, "{told}");
        }
        assert!(!text.contains("paper, read"));
        assert!(text.contains(">goal</text>") && !text.contains("NaN"));
    }
}
