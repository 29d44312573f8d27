//! Draws plots as SVG: lines and points over two axes, or groups of bars.
//!
//! ```text
//! plot    the parts of a plot: plain data, no drawing
//! scale   positions on an axis, and the choice and format of labels
//! draw    draws lines, points, error bars, groups of bars, and the frame and legend around them
//! svg     elements, escaping; style.css has the colours
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
//! let (x, y) = (Axis::linear("crawl rate", Unit::Percent), Axis::log("delay", Unit::Seconds));
//! let plot = Plot::over(x, y, "Figure 7: delay over crawl rate", "200,000 documents, two cores")
//!     .line("Percolator", Role::Ours(0), ours)
//!     .dashed("Percolator, 2010", Role::Paper(0), vec![Point::at(1.0, 2.0)])
//!     .mark(Line::X(40.0), "the paper's knee");
//! std::fs::write("fig7.svg", plot.svg())?;
//! ```

mod draw;
mod scale;
mod svg;

use crate::statistics::Estimate;

/// A plot: lines and points over two axes, or groups of bars.
#[derive(Debug, Clone)]
pub(crate) struct Plot {
    title: String,
    /// The setting of the measurement: one or two sentences, wrapped.
    subtitle: String,
    across: Across,
    y: Axis,
    /// The series, drawn in this order, the last on top.
    series: Vec<Series>,
    references: Vec<Reference>,
}

/// The places from left to right.
#[derive(Debug, Clone)]
enum Across {
    Axis(Axis),
    /// Groups of bars, each with its label: one bar for each series in each group.
    Groups(Vec<String>),
}

#[derive(Debug, Clone)]
pub(crate) struct Axis {
    label: String,
    scale: Scale,
    unit: Unit,
    /// The ends of the axis. `None` means those of the data, rounded outwards.
    ends: Option<(f64, f64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scale {
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

/// A line, points without one, or the bars of one colour.
#[derive(Debug, Clone)]
struct Series {
    name: String,
    role: Role,
    form: Form,
    /// The points. The first coordinate of a bar is the number of its group.
    points: Vec<Point>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Solid,
    Dashed,
    /// No line, only points.
    Points,
    Bars,
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
    x: f64,
    y: Estimate,
}

/// A labelled line across the plot: a goal, a limit, a moment.
#[derive(Debug, Clone)]
struct Reference {
    line: Line,
    label: String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Line {
    /// A vertical line, at this value of the first axis.
    X(f64),
    /// A horizontal line, at this value of the second axis.
    Y(f64),
}

impl Plot {
    pub(crate) fn over(x: Axis, y: Axis, title: &str, subtitle: impl Into<String>) -> Self {
        Plot::new(Across::Axis(x), y, title, subtitle.into())
    }

    pub(crate) fn groups<S: Into<String>>(
        groups: impl IntoIterator<Item = S>,
        y: Axis,
        title: &str,
        subtitle: impl Into<String>,
    ) -> Self {
        let groups = groups.into_iter().map(Into::into).collect();
        Plot::new(Across::Groups(groups), y, title, subtitle.into())
    }

    fn new(across: Across, y: Axis, title: &str, subtitle: String) -> Self {
        let (series, references) = (Vec::new(), Vec::new());
        Plot { title: title.to_owned(), subtitle, across, y, series, references }
    }

    fn with(mut self, name: impl Into<String>, role: Role, form: Form, points: Vec<Point>) -> Self {
        self.series.push(Series { name: name.into(), role, form, points });
        self
    }

    pub(crate) fn line(self, name: &str, role: Role, points: Vec<Point>) -> Self {
        self.with(name, role, Form::Solid, points)
    }

    pub(crate) fn dashed(self, name: &str, role: Role, points: Vec<Point>) -> Self {
        self.with(name, role, Form::Dashed, points)
    }

    pub(crate) fn points(self, name: impl Into<String>, role: Role, points: Vec<Point>) -> Self {
        self.with(name, role, Form::Points, points)
    }

    /// Adds a bar for each group. If one is missing, the others of its group close up.
    pub(crate) fn bars(
        self,
        name: &str,
        role: Role,
        values: impl IntoIterator<Item = Option<Estimate>>,
    ) -> Self {
        let bar =
            |(group, value): (usize, Option<Estimate>)| Some(Point { x: group as f64, y: value? });
        let points = values.into_iter().enumerate().filter_map(bar).collect();
        self.with(name, role, Form::Bars, points)
    }

    pub(crate) fn mark(mut self, line: Line, label: impl Into<String>) -> Self {
        self.references.push(Reference { line, label: label.into() });
        self
    }
}

impl Axis {
    /// Creates an axis with equal steps.
    pub(crate) fn linear(label: impl Into<String>, unit: Unit) -> Self {
        Axis { label: label.into(), scale: Scale::Linear, unit, ends: None }
    }

    /// Creates an axis with equal factors.
    pub(crate) fn log(label: impl Into<String>, unit: Unit) -> Self {
        Axis { scale: Scale::Log, ..Axis::linear(label, unit) }
    }

    pub(crate) fn between(self, low: f64, high: f64) -> Self {
        Axis { ends: Some((low, high)), ..self }
    }
}

impl Point {
    pub(crate) fn at(x: f64, y: f64) -> Self {
        Point::of(x, Estimate::alone(y))
    }

    pub(crate) fn of(x: f64, y: Estimate) -> Self {
        Point { x, y }
    }

    pub(crate) fn between(self, low: f64, high: f64) -> Self {
        Point { y: Estimate { low, high, ..self.y }, ..self }
    }
}
