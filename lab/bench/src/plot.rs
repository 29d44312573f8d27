//! Draws plots as SVG: lines and points over two axes ([`Chart`]), and groups of bars
//! ([`Bars`]).
//!
//! ```text
//! plot    the parts of a plot: plain data, no drawing
//! scale   positions on an axis, and the choice and format of labels
//! chart   draws lines, points, error bars
//! bars    draws groups of bars
//! svg     elements, escaping, the style sheet
//! ```
//!
//! No crate is used for this. A plot must be readable on a light and on a dark page, which
//! takes a style sheet with two sets of colours. Crates that draw SVG without further
//! dependencies write fixed colours into every element. The rest is arithmetic.
//!
//! A plot shows the paper's own points beside ours, if the paper has any. [`Role`] gives each
//! kind of series its look, the same in every experiment. Colours also differ in lightness, and
//! each series has a marker of its own.
//!
//! Values that an axis cannot show are left out: those that are not finite, or not positive on
//! a logarithmic axis.
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
    /// The title of the plot.
    pub(crate) title: String,
    /// The setting of the measurement: one or two sentences, wrapped.
    pub(crate) subtitle: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// The series, drawn in this order, the last on top.
    pub(crate) series: Vec<Series>,
    pub(crate) references: Vec<Reference>,
}

/// Groups of bars: one bar for each series in each group.
#[derive(Debug, Clone)]
pub(crate) struct Bars {
    /// The title of the plot.
    pub(crate) title: String,
    /// The setting of the measurement: one or two sentences, wrapped.
    pub(crate) subtitle: String,
    pub(crate) y: Axis,
    /// The labels below the groups.
    pub(crate) groups: Vec<String>,
    pub(crate) series: Vec<BarSeries>,
    /// Horizontal reference lines.
    pub(crate) references: Vec<Reference>,
}

/// An axis: its label, scale and unit.
#[derive(Debug, Clone)]
pub(crate) struct Axis {
    pub(crate) label: String,
    pub(crate) scale: Scale,
    pub(crate) unit: Unit,
    /// The ends of the axis. `None` means those of the data, rounded outwards.
    pub(crate) ends: Option<(f64, f64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    Linear,
    Log,
}

/// The format of numbers on an axis and on bars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// `0.25`, `1,500`, `2M`.
    Plain,
    /// Seconds: `20 ms`, `3 s`.
    Seconds,
    /// Percent: `5 %`.
    Percent,
}

/// A line, or points without one.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    /// The name in the legend.
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) stroke: Stroke,
    pub(crate) points: Vec<Point>,
}

/// The line that joins the points of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stroke {
    Solid,
    Dashed,
    /// No line, only points.
    None,
}

/// The origin of a series. The number distinguishes several of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Measured figures of this project.
    Ours(usize),
    /// Measured figures of another system.
    Peer(usize),
    /// The paper's figures, read from its text and plots.
    Paper(usize),
}

/// A point, with the spread of its value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) spread: Option<(f64, f64)>,
}

/// The bars of one colour.
#[derive(Debug, Clone)]
pub(crate) struct BarSeries {
    /// The name in the legend.
    pub(crate) name: String,
    pub(crate) role: Role,
    /// One bar for each group. If it is missing, the others of the group close up.
    pub(crate) values: Vec<Option<Bar>>,
}

/// A bar, with the spread of its value.
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
    /// A vertical line, at this value of the first axis.
    X(f64),
    /// A horizontal line, at this value of the second axis.
    Y(f64),
}

impl Axis {
    /// Creates an axis with equal steps.
    pub(crate) fn linear(label: impl Into<String>, unit: Unit) -> Self {
        Axis { label: label.into(), scale: Scale::Linear, unit, ends: None }
    }

    /// Creates an axis with equal factors.
    pub(crate) fn log(label: impl Into<String>, unit: Unit) -> Self {
        Axis { label: label.into(), scale: Scale::Log, unit, ends: None }
    }

    /// Sets the ends of the axis, whatever the data.
    pub(crate) fn between(mut self, low: f64, high: f64) -> Self {
        self.ends = Some((low, high));
        self
    }
}

impl Series {
    /// Creates a series of joined points.
    pub(crate) fn line(name: impl Into<String>, role: Role, points: Vec<Point>) -> Self {
        Series { name: name.into(), role, stroke: Stroke::Solid, points }
    }

    /// Creates a series of points joined by a dashed line.
    pub(crate) fn dashed(name: impl Into<String>, role: Role, points: Vec<Point>) -> Self {
        Series { name: name.into(), role, stroke: Stroke::Dashed, points }
    }

    /// Creates a series of points without a line.
    pub(crate) fn points(name: impl Into<String>, role: Role, points: Vec<Point>) -> Self {
        Series { name: name.into(), role, stroke: Stroke::None, points }
    }
}

impl Point {
    pub(crate) fn at(x: f64, y: f64) -> Self {
        Point { x, y, spread: None }
    }

    /// Adds an error bar.
    pub(crate) fn between(mut self, low: f64, high: f64) -> Self {
        self.spread = Some((low, high));
        self
    }
}

impl Bar {
    pub(crate) fn of(value: f64) -> Self {
        Bar { value, spread: None }
    }

    /// Adds an error bar.
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
    /// Creates a vertical line.
    pub(crate) fn x(at: f64, label: impl Into<String>) -> Self {
        Reference { line: Line::X(at), label: label.into() }
    }

    /// Creates a horizontal line.
    pub(crate) fn y(at: f64, label: impl Into<String>) -> Self {
        Reference { line: Line::Y(at), label: label.into() }
    }
}
