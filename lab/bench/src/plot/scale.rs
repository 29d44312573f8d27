//! Computes the position of a value on an axis, and chooses and formats the labels.

use super::{Axis, Scale, Unit};

/// An axis laid over a stretch of the page.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Laid {
    scale: Scale,
    unit: Unit,
    pub(super) low: f64,
    high: f64,
    /// The pixels of the low and of the high end.
    from: f64,
    to: f64,
}

/// A value with a line across the plot, and perhaps a label.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) label: Option<String>,
}

/// Approximate number of labels on a linear axis.
const LABELS: f64 = 8.0;
/// Beyond this many powers of ten, a logarithmic axis labels only some.
const DECADES_LABELLED: i32 = 8;

impl Laid {
    /// Lays an axis for these values from one pixel to another.
    pub(super) fn new(axis: &Axis, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let shown =
            |value: &f64| value.is_finite() && (axis.scale == Scale::Linear || *value > 0.0);
        let (low, high) = axis.ends.unwrap_or_else(|| {
            let (low, high) = values
                .filter(shown)
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                    (low.min(value), high.max(value))
                });
            rounded(axis.scale, low, high)
        });
        Laid { scale: axis.scale, unit: axis.unit, low, high, from, to }
    }

    /// The pixel of a value; `None` if the axis cannot show it.
    pub(super) fn pixel(&self, value: f64) -> Option<f64> {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log if value <= 0.0 => return None,
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        // A share slightly beyond the ends comes from rounding.
        (-0.0001..=1.0001).contains(&share).then_some(self.from + share * (self.to - self.from))
    }

    /// The pixel of a value, moved to the nearer end if it lies beyond. Used for the ends of
    /// error bars.
    pub(super) fn clamped(&self, value: f64) -> f64 {
        let value = if value.is_finite() { value } else { self.high };
        self.pixel(value.clamp(self.low, self.high)).unwrap_or(self.from)
    }

    pub(super) fn ticks(&self) -> Vec<Tick> {
        match self.scale {
            Scale::Linear => self.linear_ticks(),
            Scale::Log => self.log_ticks(),
        }
    }

    fn linear_ticks(&self) -> Vec<Tick> {
        let step = step(self.high - self.low);
        let (first, last) = ((self.low / step).ceil() as i64, (self.high / step + 1e-9) as i64);
        (first..=last)
            .map(|n| n as f64 * step)
            .map(|at| Tick { at, label: Some(format(at, self.unit)) })
            .collect()
    }

    fn log_ticks(&self) -> Vec<Tick> {
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let decades = (self.high / self.low).log10();
        let every = 1 + (last - first) / (DECADES_LABELLED + 1);
        let mut ticks = Vec::new();
        for decade in first..=last {
            for digit in 1..10 {
                let at = f64::from(digit) * 10f64.powi(decade);
                let labelled = match digit {
                    1 => (decade - first) % every == 0,
                    2 | 5 => decades < 2.5,
                    _ => false,
                };
                // With many powers of ten, further lines would merge into a grey area.
                if self.pixel(at).is_some() && (digit == 1 || decades < 6.5) {
                    let label = labelled.then(|| format(at, self.unit));
                    ticks.push(Tick { at, label });
                }
            }
        }
        ticks
    }
}

/// The ends of an axis for data between these values.
fn rounded(scale: Scale, low: f64, high: f64) -> (f64, f64) {
    if low > high {
        // There are no data.
        return (1.0, 10.0);
    }
    match scale {
        Scale::Log => {
            let (low, high) = (floor_125(low), ceil_125(high));
            if low < high { (low, high) } else { (low / 10.0, high * 10.0) }
        }
        Scale::Linear => {
            let low = if low > 0.0 { 0.0 } else { low };
            let high = if high < 0.0 { 0.0 } else { high };
            let span = if high > low { high - low } else { 1.0 };
            // Leaves room above the topmost point.
            let high = if high > 0.0 { high + span * 0.05 } else { high.max(low + span) };
            let step = step(high - low);
            ((low / step).floor() * step, (high / step).ceil() * step)
        }
    }
}

/// The largest 1, 2 or 5 times a power of ten that is not above a positive value.
fn floor_125(value: f64) -> f64 {
    let decade = 10f64.powi(value.log10().floor() as i32);
    [5.0, 2.0, 1.0].map(|n| n * decade).into_iter().find(|n| *n <= value).unwrap_or(decade)
}

/// The smallest 1, 2 or 5 times a power of ten that is not below a positive value.
fn ceil_125(value: f64) -> f64 {
    let decade = 10f64.powi(value.log10().floor() as i32);
    let above = [1.0, 2.0, 5.0].map(|n| n * decade).into_iter().find(|n| *n >= value);
    above.unwrap_or(10.0 * decade)
}

/// A step of 1, 2 or 5 times a power of ten.
fn step(span: f64) -> f64 {
    // Slightly less, so that a span of round steps keeps these steps.
    ceil_125(span / LABELS * 0.999)
}

pub(super) fn format(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Plain => plain(value),
        Unit::Percent => format!("{} %", plain(value)),
        Unit::Seconds => {
            let (scaled, name) = match value.abs() {
                0.0 => (0.0, "s"),
                v if v < 0.999_5e-6 => (value * 1e9, "ns"),
                v if v < 0.999_5e-3 => (value * 1e6, "µs"),
                v if v < 0.999_5 => (value * 1e3, "ms"),
                _ => (value, "s"),
            };
            format!("{} {name}", plain(scaled))
        }
    }
}

/// Formats a number with three significant digits, with grouped thousands and short millions.
fn plain(value: f64) -> String {
    let size = value.abs();
    if size >= 1e9 {
        return format!("{}G", plain(value / 1e9));
    }
    if size >= 1e6 {
        return format!("{}M", plain(value / 1e6));
    }
    if size >= 1000.0 {
        let sign = if value < 0.0 { "-" } else { "" };
        return format!("{sign}{}", percolator_cli::output::grouped(size.round() as u64));
    }
    if size > 0.0 && size < 1e-4 {
        return format!("{value:.0e}");
    }
    let digits = match size {
        s if s >= 100.0 => 0,
        s if s >= 10.0 => 1,
        s if s >= 1.0 => 2,
        s if s >= 0.1 => 3,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, values: &[f64]) -> Vec<String> {
        let laid = Laid::new(axis, values.iter().copied(), 0.0, 100.0);
        laid.ticks().into_iter().filter_map(|tick| tick.label).collect()
    }

    #[test]
    fn linear_axes_begin_at_zero_in_round_steps() {
        let axis = Axis::linear("", Unit::Plain);
        assert_eq!(labels(&axis, &[3.0, 42.0]), ["0", "10", "20", "30", "40", "50"]);
        assert_eq!(labels(&axis, &[0.0]), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(labels(&axis, &[-1.0, 1.0]).len(), 6);
        let laid = Laid::new(&axis, [f64::NAN, 42.0].into_iter(), 0.0, 100.0);
        assert_eq!((laid.pixel(25.0), laid.pixel(60.0)), (Some(50.0), None));
        assert_eq!(laid.clamped(60.0), 100.0);
    }

    #[test]
    fn logarithmic_axes_label_powers_of_ten() {
        let axis = Axis::log("", Unit::Seconds);
        assert_eq!(
            labels(&axis, &[0.003, 400.0, -1.0]),
            ["10 ms", "100 ms", "1 s", "10 s", "100 s"]
        );
        assert_eq!(labels(&axis, &[1.0, 8.0]), ["1 s", "2 s", "5 s", "10 s"]);
        let laid = Laid::new(&axis, [1.0, 100.0].into_iter(), 0.0, 100.0);
        assert_eq!((laid.pixel(10.0), laid.pixel(0.0)), (Some(50.0), None));
        assert!(labels(&axis, &[1e-9, 1e9]).len() <= 9);
        assert_eq!(labels(&axis, &[]), ["1 s", "2 s", "5 s", "10 s"]);
    }

    #[test]
    fn numbers_are_short() {
        let seconds = |value| format(value, Unit::Seconds);
        assert_eq!(seconds(0.000_25), "250 µs");
        assert_eq!(seconds(0.001), "1 ms");
        assert_eq!(seconds(1800.0), "1,800 s");
        assert_eq!(format(12.5, Unit::Percent), "12.5 %");
        assert_eq!([0.133, 1234.5, 2_500_000.0, 0.0].map(plain), ["0.133", "1,235", "2.5M", "0"]);
    }
}
