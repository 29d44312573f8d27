//! The process's own numbers, under the names that Prometheus' clients use in every language.
//!
//! Linux alone has them. Elsewhere `/metrics` lacks them.

use std::fmt::Error;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// The unit of times in `/proc`, for programs: 100 on every architecture.
const TICKS_A_SECOND: f64 = 100.0;

/// The numbers of this process.
#[derive(Debug)]
pub(crate) struct Process;

impl Collector for Process {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> Result<(), Error> {
        if let Some(cpu_s) = fs::read_to_string("/proc/self/stat").ok().and_then(|s| cpu_s(&s)) {
            let help = "Processor time of this process";
            let unit = Some(&Unit::Seconds);
            let family = out.encode_descriptor("process_cpu", help, unit, MetricType::Counter)?;
            ConstCounter::new(cpu_s).encode(family)?;
        }
        if let Some(bytes) =
            fs::read_to_string("/proc/self/status").ok().and_then(|s| resident_bytes(&s))
        {
            let (name, help) = ("process_resident_memory", "Memory of this process");
            let family =
                out.encode_descriptor(name, help, Some(&Unit::Bytes), MetricType::Gauge)?;
            ConstGauge::new(bytes).encode(family)?;
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            let (name, help) = ("process_open_fds", "Files and sockets that this process has open");
            let family = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
            // This listing needs one itself.
            ConstGauge::new(open.count().saturating_sub(1) as u64).encode(family)?;
        }
        Ok(())
    }
}

/// The sum of user and system time in `/proc/self/stat`. The name of the program, in brackets,
/// may contain spaces and brackets.
fn cpu_s(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    // Fields 14 and 15 of the whole line.
    let mut ticks = rest.split_ascii_whitespace().skip(11).take(2).map(str::parse::<u64>);
    let (user, system) = (ticks.next()?.ok()?, ticks.next()?.ok()?);
    Some((user + system) as f64 / TICKS_A_SECOND)
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_moves_no_field() {
        let stat = "7 (a) b) (c) S 1 7 7 0 -1 4194560 90 0 0 0 150 50 3 4 20 0 9 0 1 2 3";
        assert_eq!(cpu_s(stat), Some(2.0));
        assert_eq!(cpu_s("7 (a) S 1"), None);
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let status = "Name:\tpercolator\nVmHWM:\t     900 kB\nVmRSS:\t     512 kB\n";
        assert_eq!(resident_bytes(status), Some(512 * 1024));
        assert_eq!(resident_bytes("Name:\tpercolator\n"), None);
    }
}
