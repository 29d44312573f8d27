//! Draws lines, points and error bars, and the frame and legend that bars share.

use super::scale::{Laid, format};
use super::svg::{Hold, Svg, class, is_hollow, width_of, wrapped};
use super::{Chart, Line, Point, Reference, Role, Series, Stroke};

/// The size of the page, in pixels.
pub(super) const WIDTH: f64 = 900.0;
pub(super) const HEIGHT: f64 = 520.0;
/// The margin at the left and the right, in pixels.
const MARGIN: f64 = 22.0;
/// The ends of the axes' area.
pub(super) const LEFT: f64 = 92.0;
pub(super) const RIGHT: f64 = 650.0;
const BOTTOM: f64 = HEIGHT - 62.0;
/// The left end of the legend.
const LEGEND: f64 = RIGHT + 28.0;
const LINE: f64 = 18.0;
/// Height of a line of labels above the plot.
const REFERENCE_LINE: f64 = 16.0;
/// Size of the letters in legend and subtitle, in pixels.
const LETTER: f64 = 13.0;

impl Chart {
    /// The plot as an SVG document.
    pub(crate) fn svg(&self) -> String {
        let mut svg = Svg::new(WIDTH, HEIGHT, &self.title);
        let top = heading(&mut svg, &self.title, &self.subtitle);
        let points = || self.series.iter().flat_map(|series| &series.points);
        let at = |of: fn(&Line) -> Option<f64>| {
            self.references.iter().filter_map(move |reference| of(&reference.line))
        };
        let xs = points().map(|point| point.x).chain(at(|line| match line {
            Line::X(x) => Some(*x),
            Line::Y(_) => None,
        }));
        let spread = |point: &Point| {
            let (low, high) = point.spread.unwrap_or((point.y, point.y));
            [low, point.y, high]
        };
        let ys = points().flat_map(spread).chain(at(|line| match line {
            Line::Y(y) => Some(*y),
            Line::X(_) => None,
        }));
        let x = Laid::new(&self.x, xs, LEFT, RIGHT);
        let rows = stacked(&self.references, &x).iter().map(|label| label.row + 1).max();
        let top = top + REFERENCE_LINE * rows.unwrap_or(1).saturating_sub(1) as f64;
        let y = Laid::new(&self.y, ys, BOTTOM, top);
        for tick in x.ticks() {
            let Some(at) = x.pixel(tick.at) else { continue };
            let line = if tick.label.is_some() { "grid" } else { "minor" };
            svg.line(line, (at, top), (at, BOTTOM));
            if let Some(label) = tick.label {
                svg.text("tick", (at, BOTTOM + 19.0), Hold::Middle, &label);
            }
        }
        let middle = f64::midpoint(LEFT, RIGHT);
        svg.text("name", (middle, BOTTOM + 44.0), Hold::Middle, &self.x.label);
        second_axis(&mut svg, &y, &self.y.label, top);
        references(&mut svg, &self.references, Some(&x), &y, top);
        if points().next().is_none() {
            let at = (middle, f64::midpoint(top, BOTTOM));
            svg.text("note", at, Hold::Middle, "nothing was measured");
        }
        for series in &self.series {
            self.draw(&mut svg, series, &x, &y);
        }
        let entries = self.series.iter().map(|s| (s.name.as_str(), s.role, s.stroke));
        legend(&mut svg, entries, top);
        svg.finish()
    }

    fn draw(&self, svg: &mut Svg, series: &Series, x: &Laid, y: &Laid) {
        let role = class(series.role);
        let placed: Vec<(&Point, (f64, f64))> = series
            .points
            .iter()
            .filter_map(|point| Some((point, (x.pixel(point.x)?, y.pixel(point.y)?))))
            .collect();
        let line: Vec<(f64, f64)> = placed.iter().map(|(_, at)| *at).collect();
        match series.stroke {
            Stroke::Solid => svg.path(&format!("{role} join"), &line),
            Stroke::Dashed => svg.path(&format!("{role} join dashed"), &line),
            Stroke::None => {}
        }
        for (point, (at, _)) in &placed {
            if let Some((low, high)) = point.spread {
                let class = format!("{role} err");
                error_bar(svg, &class, *at, y.clamped(low), y.clamped(high));
            }
        }
        for (point, at) in &placed {
            let told = format!(
                "{}: {} at {}",
                series.name,
                format(point.y, self.y.unit),
                format(point.x, self.x.unit)
            );
            svg.marker(&marker_class(series.role), form(series.role), *at, &told);
        }
    }
}

/// Draws title and subtitle, and returns the top of the axes' area.
pub(super) fn heading(svg: &mut Svg, title: &str, subtitle: &str) -> f64 {
    svg.text("title", (MARGIN, 33.0), Hold::Start, title);
    let mut y = 36.0;
    for line in wrapped(subtitle, LETTER, WIDTH - 2.0 * MARGIN) {
        y += LINE;
        svg.text("sub", (MARGIN, y), Hold::Start, &line);
    }
    y + 26.0
}

/// Draws the second axis: lines across, labels at the left, and its name.
pub(super) fn second_axis(svg: &mut Svg, y: &Laid, label: &str, top: f64) {
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

/// The bottom of the axes' area.
pub(super) fn bottom() -> f64 {
    BOTTOM
}

pub(super) fn references(
    svg: &mut Svg,
    references: &[Reference],
    x: Option<&Laid>,
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
    for Stacked { at, middle, row, label, .. } in
        x.map(|x| stacked(references, x)).unwrap_or_default()
    {
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

/// Draws a vertical line with a short line across each end.
pub(super) fn error_bar(svg: &mut Svg, class: &str, x: f64, low: f64, high: f64) {
    svg.line(class, (x, low), (x, high));
    for y in [low, high] {
        svg.line(class, (x - 4.0, y), (x + 4.0, y));
    }
}

/// Draws the names of the series at the right.
pub(super) fn legend<'a>(
    svg: &mut Svg,
    entries: impl Iterator<Item = (&'a str, Role, Stroke)>,
    top: f64,
) {
    let mut y = top + 8.0;
    for (name, role, stroke) in entries {
        let colour = class(role);
        let (from, to) = ((LEGEND, y), (LEGEND + 26.0, y));
        match stroke {
            Stroke::Solid => svg.path(&format!("{colour} join"), &[from, to]),
            Stroke::Dashed => svg.path(&format!("{colour} join dashed"), &[from, to]),
            Stroke::None => {}
        }
        svg.marker(&marker_class(role), form(role), (LEGEND + 13.0, y), "");
        for line in wrapped(name, LETTER, WIDTH - LEGEND - 36.0 - 8.0) {
            svg.text("name", (LEGEND + 36.0, y + 4.4), Hold::Start, &line);
            y += LINE;
        }
        y += 8.0;
    }
}

fn marker_class(role: Role) -> String {
    if is_hollow(role) { format!("{} hollow", class(role)) } else { class(role) }
}

/// The form of a role's marker.
fn form(role: Role) -> usize {
    match role {
        Role::Ours(n) | Role::Paper(n) => n,
        Role::Peer(n) => n + 1,
    }
}

#[cfg(test)]
mod tests {
    use crate::plot::{Axis, Unit};

    use super::*;

    fn chart(series: Vec<Series>) -> String {
        let (x, y) = (Axis::linear("rate", Unit::Percent), Axis::log("delay", Unit::Seconds));
        let references = vec![Reference::x(40.0, "knee"), Reference::y(1.0, "goal")];
        Chart { title: "t".into(), subtitle: "s".into(), x, y, series, references }.svg()
    }

    #[test]
    fn what_an_axis_cannot_show_is_left_out() {
        let points = [(1.0, 0.01), (2.0, 0.0), (3.0, f64::NAN), (f64::INFINITY, 1.0), (4.0, 100.0)];
        let points = points.map(|(x, y)| Point::at(x, y)).to_vec();
        let text = chart(vec![Series::line("ours", Role::Ours(0), points)]);
        // Two points, and the marker of the legend.
        assert_eq!(text.matches("<circle").count(), 3, "{text}");
        assert!(text.contains("ours: 100 s at 4 %"));
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }

    #[test]
    fn error_bars_end_at_the_axes() {
        let points = vec![Point::at(1.0, 1.0).between(0.0, f64::INFINITY), Point::at(2.0, 100.0)];
        let text = chart(vec![Series::points("ours", Role::Ours(0), points)]);
        assert_eq!(text.matches("class=\"o0 err\"").count(), 3);
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }

    #[test]
    fn labels_that_would_meet_stand_above_each_other() {
        let marks = [10.0, 18.0, 26.0, 34.0];
        let references = marks.map(|at| Reference::x(at, "they are killed"));
        let x = Laid::new(&Axis::linear("time", Unit::Plain), [0.0, 60.0].into_iter(), LEFT, RIGHT);
        let labels = stacked(&references, &x);
        // Each label overlaps only the next one.
        let apart = labels[1].middle - labels[0].middle;
        assert!((apart..2.0 * apart).contains(&(2.0 * labels[0].half)), "{apart}");
        assert_eq!(labels.iter().map(|label| label.row).collect::<Vec<_>>(), [0, 1, 0, 1]);
    }

    #[test]
    fn an_empty_chart_says_so() {
        assert!(chart(Vec::new()).contains("nothing was measured"));
    }
}
