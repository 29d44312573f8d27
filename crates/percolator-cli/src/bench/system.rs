//! What the operating system says of this process and of the machine's load.

use std::time::Duration;

use serde_json::{Value, json};

/// The load of the machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// How many processes wanted to run, on average over the last minute.
    pub(crate) processes: Option<f64>,
    /// The share of the last ten seconds in which something waited for a processor, in percent.
    pub(crate) pressure: Option<f64>,
}

impl Load {
    pub(crate) fn now() -> Self {
        Load { processes: load(), pressure: cpu_pressure() }
    }
}

/// The machine in JSON, with its load before and after a benchmark.
pub(crate) fn machine([before, after]: [Load; 2]) -> Value {
    let load = |load: Load| json!({ "load_1m": load.processes, "cpu_pressure_10s": load.pressure });
    json!({
        "os": std::env::consts::OS,
        "arch": std::env::consts::ARCH,
        "processor": processor(),
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
        "memory_bytes": memory_bytes(),
        "before": load(before),
        "after": load(after),
    })
}

/// The processor's name; `None` where it cannot be had.
fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The machine's memory; `None` where it cannot be had.
fn memory_bytes() -> Option<u64> {
    kib_of(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")
}

/// What such a line tells in kB, in bytes.
fn kib_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Processor time of this process, all threads; `None` where it cannot be had.
#[cfg(unix)]
pub(crate) fn cpu_time() -> Option<Duration> {
    let spec = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = Duration::from_secs(u64::try_from(spec.tv_sec).ok()?);
    Some(seconds + Duration::from_nanos(u64::try_from(spec.tv_nsec).ok()?))
}

/// Processor time of this process, all threads; `None` where it cannot be had.
#[cfg(not(unix))]
pub(crate) fn cpu_time() -> Option<Duration> {
    None
}

/// How many processes wanted to run, on average over the last minute.
pub(crate) fn load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// The share of the last ten seconds in which something waited for a processor, in percent.
pub(crate) fn cpu_pressure() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/pressure/cpu").ok()?;
    let some = text.lines().find(|line| line.starts_with("some"))?;
    some.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?.parse().ok()
}

/// How much memory this process holds; `None` where it cannot be had.
pub(crate) fn resident_bytes() -> Option<u64> {
    kib_of(&std::fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// The most memory this process has held so far; `None` where it cannot be had.
pub(crate) fn peak_memory_bytes() -> Option<u64> {
    kib_of(&std::fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}
