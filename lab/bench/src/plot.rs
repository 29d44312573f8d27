//! Plots as SVG: lines and points over two axes ([`Chart`]), and groups of bars ([`Bars`]).
//!
//! ```text
//! plot    what a plot is made of: plain data, no drawing
//! scale   where a value lies on an axis, which values are labelled, and how
//! chart   draws lines, points, error bars
//! bars    draws groups of bars
//! svg     elements, escaping, the style sheet
//! ```
//!
//! Written here rather than taken from a crate: a plot must be readable on a light and on a dark
//! page, which takes a style sheet with both sets of colours, and the crates that draw SVG without
//! further dependencies write fixed colours into every element. The rest is arithmetic.
//!
//! A plot has the paper's own points beside ours where the paper has any: [`Role`] gives each kind
//! of series its look, the same in every experiment. Colours differ in lightness as well, and each
//! series has a marker of its own.
//!
//! Values that an axis cannot show (not finite, or not positive on a logarithmic axis) are left
//! out.
//!
//! ```ignore
//! let ours = vec![Point::at(1.0, 0.002).between(0.001, 0.02)];
//! let chart = Chart {
//!     title: "Figure 7: delay over crawl rate".into(),
//!     subtitle: "200,000 documents, two cores".into(),
//!     x: Axis::linear("crawl rate", Unit::Percent),
//!     y: Axis::log("median delay", Unit::Seconds),
//!     series: vec![
//!         Series::line("Percolator", Role::Ours(0), ours),
//!         Series::dashed("Percolator, 2010", Role::Paper(0), vec![Point::at(1.0, 2.0)]),
//!     ],
//!     references: vec![Reference::x(40.0, "the paper's knee")],
//! };
//! std::fs::write("fig7.svg", chart.svg())?;
//! ```

mod bars;
mod chart;
mod scale;
mod svg;

use crate::statistics::Estimate;

/// Lines and points over two axes.
#[derive(Debug, Clone)]
pub(crate) struct Chart {
    /// What the plot shows.
    pub(crate) title: String,
    /// With what, and where: one or two sentences, wrapped.
    pub(crate) subtitle: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// Drawn in this order, the last on top.
    pub(crate) series: Vec<Series>,
    pub(crate) references: Vec<Reference>,
}

/// Groups of bars: one bar for each series in each group.
#[derive(Debug, Clone)]
pub(crate) struct Bars {
    /// What the plot shows.
    pub(crate) title: String,
    /// With what, and where: one or two sentences, wrapped.
    pub(crate) subtitle: String,
    pub(crate) y: Axis,
    /// What stands below the groups.
    pub(crate) groups: Vec<String>,
    pub(crate) series: Vec<BarSeries>,
    /// Horizontal ones.
    pub(crate) references: Vec<Reference>,
}

/// An axis: what it measures, and how.
#[derive(Debug, Clone)]
pub(crate) struct Axis {
    pub(crate) label: String,
    pub(crate) scale: Scale,
    pub(crate) unit: Unit,
    /// The ends; those of the data, rounded outwards, if not given.
    pub(crate) ends: Option<(f64, f64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    Linear,
    Log,
}

/// How numbers on an axis, and on bars, are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// `0.25`, `1,500`, `2M`.
    Plain,
    /// Of seconds: `20 ms`, `3 s`.
    Seconds,
    /// Of percent: `5 %`.
    Percent,
}

/// A line, or points without one.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    /// In the legend.
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) stroke: Stroke,
    pub(crate) points: Vec<Point>,
}

/// What joins the points of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stroke {
    Solid,
    Dashed,
    /// Nothing: points alone.
    None,
}

/// Whose figures these are. The number tells several of one kind apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// This project's.
    Ours(usize),
    /// Of something else that ran beside it.
    Peer(usize),
    /// The paper's own, read from its text and figures.
    Paper(usize),
}

/// A point, with how far the value spreads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) spread: Option<(f64, f64)>,
}

/// The bars of one colour.
#[derive(Debug, Clone)]
pub(crate) struct BarSeries {
    /// In the legend.
    pub(crate) name: String,
    pub(crate) role: Role,
    /// One for each group; without one, the others of the group close up.
    pub(crate) values: Vec<Option<Bar>>,
}

/// A bar, with how far the value spreads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bar {
    pub(crate) value: f64,
    pub(crate) spread: Option<(f64, f64)>,
}

/// A labelled line across the plot: a goal, a limit, a moment.
#[derive(Debug, Clone)]
pub(crate) struct Reference {
    pub(crate) line: Line,
    pub(crate) label: String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Line {
    /// Vertical, at this value of the first axis.
    X(f64),
    /// Horizontal, at this value of the second.
    Y(f64),
}

impl Axis {
    /// With equal steps.
    pub(crate) fn linear(label: impl Into<String>, unit: Unit) -> Self {
        Axis { label: label.into(), scale: Scale::Linear, unit, ends: None }
    }

    /// With equal factors.
    pub(crate) fn log(label: impl Into<String>, unit: Unit) -> Self {
        Axis { label: label.into(), scale: Scale::Log, unit, ends: None }
    }

    /// From one value to another, whatever the data are.
    pub(crate) fn between(mut self, low: f64, high: f64) -> Self {
        self.ends = Some((low, high));
        self
    }
}

impl Series {
    /// Points that are joined.
    pub(crate) fn line(name: impl Into<String>, role: Role, points: Vec<Point>) -> Self {
        Series { name: name.into(), role, stroke: Stroke::Solid, points }
    }

    /// Points joined by a dashed line.
    pub(crate) fn dashed(name: impl Into<String>, role: Role, points: Vec<Point>) -> Self {
        Series { name: name.into(), role, stroke: Stroke::Dashed, points }
    }

    /// Points alone.
    pub(crate) fn points(name: impl Into<String>, role: Role, points: Vec<Point>) -> Self {
        Series { name: name.into(), role, stroke: Stroke::None, points }
    }
}

impl Point {
    pub(crate) fn at(x: f64, y: f64) -> Self {
        Point { x, y, spread: None }
    }

    /// With an error bar.
    pub(crate) fn between(mut self, low: f64, high: f64) -> Self {
        self.spread = Some((low, high));
        self
    }
}

impl Bar {
    pub(crate) fn of(value: f64) -> Self {
        Bar { value, spread: None }
    }

    /// With an error bar.
    pub(crate) fn between(mut self, low: f64, high: f64) -> Self {
        self.spread = Some((low, high));
        self
    }
}

impl From<Estimate> for Bar {
    fn from(Estimate { median, low, high }: Estimate) -> Self {
        Bar::of(median).between(low, high)
    }
}

impl Reference {
    /// A vertical line.
    pub(crate) fn x(at: f64, label: impl Into<String>) -> Self {
        Reference { line: Line::X(at), label: label.into() }
    }

    /// A horizontal line.
    pub(crate) fn y(at: f64, label: impl Into<String>) -> Self {
        Reference { line: Line::Y(at), label: label.into() }
    }
}
