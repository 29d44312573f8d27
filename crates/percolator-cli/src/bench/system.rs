//! What the operating system says of this process and of the machine's load.

use std::time::Duration;

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

/// The most memory this process has held so far; `None` where it cannot be had.
pub(crate) fn peak_memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
