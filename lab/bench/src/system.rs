//! Reads the operating system's figures about this process and about the machine's load.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

/// A tick of the kernel's accounting: every Linux has a hundred a second.
const TICK: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Number of processes that wanted to run, on average over the last minute.
    pub(crate) processes: Option<f64>,
    /// Share of the last ten seconds in which something waited for a processor, in percent.
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

fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn memory_bytes() -> Option<u64> {
    kib_of(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")
}

/// The value of such a line, converted from kB to bytes.
fn kib_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Processor time of all threads of this process; `None` if it cannot be measured.
#[cfg(unix)]
pub(crate) fn cpu_time() -> Option<Duration> {
    let spec = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = Duration::from_secs(u64::try_from(spec.tv_sec).ok()?);
    Some(seconds + Duration::from_nanos(u64::try_from(spec.tv_nsec).ok()?))
}

/// Processor time of this process: not available on this system.
#[cfg(not(unix))]
pub(crate) fn cpu_time() -> Option<Duration> {
    None
}

/// A clock that all processes of this machine share, and that nobody sets.
#[cfg(unix)]
pub(crate) fn shared_clock() -> Duration {
    let spec = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = Duration::from_secs(u64::try_from(spec.tv_sec).unwrap_or_default());
    seconds + Duration::from_nanos(u64::try_from(spec.tv_nsec).unwrap_or_default())
}

/// A clock that all processes of this machine share.
#[cfg(not(unix))]
pub(crate) fn shared_clock() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

/// Processor time since a moment, of this process, of its descendants, and of other processes that
/// work for it.
#[derive(Debug)]
pub(crate) struct Spent {
    own: Option<Duration>,
    others: Option<Duration>,
    helpers: Vec<u32>,
}

impl Spent {
    pub(crate) fn new() -> Self {
        Spent::with(&[])
    }

    /// Counts other processes of this machine, too.
    pub(crate) fn with(helpers: &[u32]) -> Self {
        Spent { own: cpu_time(), others: others_cpu(helpers), helpers: helpers.to_vec() }
    }

    pub(crate) fn seconds(&self) -> Option<f64> {
        let since = |now: Option<Duration>, then: Option<Duration>| {
            Some(now?.saturating_sub(then?).as_secs_f64())
        };
        Some(since(cpu_time(), self.own)? + since(others_cpu(&self.helpers), self.others)?)
    }
}

/// Processor time of all descendants and of the helpers; `None` if a helper has ended.
fn others_cpu(helpers: &[u32]) -> Option<Duration> {
    let mut ticks = 0;
    for process in helpers {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        ticks += parse_stat(&stat)?.1;
    }
    Some(descendants_cpu()? + TICK * u32::try_from(ticks).ok()?)
}

/// Processor time of all descendants of this process, including those that have ended.
pub(crate) fn descendants_cpu() -> Option<Duration> {
    let ticks: u64 = family()?.iter().map(|(_, ticks)| ticks).sum();
    Some(TICK * u32::try_from(ticks).ok()?)
}

/// All descendants of this process.
pub(crate) fn descendants() -> Option<Vec<u32>> {
    Some(family()?.into_iter().map(|(process, _)| process).collect())
}

/// All descendants of this process, each with its processor time.
fn family() -> Option<Vec<(u32, u64)>> {
    let mut children = BTreeMap::<u32, Vec<(u32, u64)>>::new();
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        // The process may have ended meanwhile; its time then counts as its parent's.
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        if let Some((parent, ticks)) = parse_stat(&stat) {
            children.entry(parent).or_default().push((pid, ticks));
        }
    }
    let mut found: Vec<(u32, u64)> = Vec::new();
    let mut left = vec![std::process::id()];
    while let Some(parent) = left.pop() {
        let of = children.remove(&parent).unwrap_or_default();
        left.extend(of.iter().map(|(process, _)| process));
        found.extend(of);
    }
    Some(found)
}

/// The parent of a process, and its time with that of its ended children.
fn parse_stat(stat: &str) -> Option<(u32, u64)> {
    // The name in parentheses may contain anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some((fields.get(1)?.parse().ok()?, ticks(11)? + ticks(12)? + ticks(13)? + ticks(14)?))
}

/// Number of processes that wanted to run, on average over the last minute.
pub(crate) fn load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Share of the last ten seconds in which something waited for a processor, in percent.
pub(crate) fn cpu_pressure() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/pressure/cpu").ok()?;
    let some = text.lines().find(|line| line.starts_with("some"))?;
    some.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?.parse().ok()
}

/// This process's operations on files and pipes, including those of reading these counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Io {
    pub(crate) read_calls: u64,
    pub(crate) write_calls: u64,
    pub(crate) written_bytes: u64,
}

impl Io {
    pub(crate) fn since(self, before: Io) -> Io {
        self.with(before, u64::saturating_sub)
    }

    pub(crate) fn plus(self, other: Io) -> Io {
        self.with(other, u64::saturating_add)
    }

    fn with(self, other: Io, of: fn(u64, u64) -> u64) -> Io {
        Io {
            read_calls: of(self.read_calls, other.read_calls),
            write_calls: of(self.write_calls, other.write_calls),
            written_bytes: of(self.written_bytes, other.written_bytes),
        }
    }
}

/// This process's operations so far; `None` if they cannot be read.
pub(crate) fn io() -> Option<Io> {
    parse_io(&std::fs::read_to_string("/proc/self/io").ok()?)
}

fn parse_io(text: &str) -> Option<Io> {
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    Some(Io { read_calls: of("syscr:")?, write_calls: of("syscw:")?, written_bytes: of("wchar:")? })
}

/// Memory of this process now; `None` if it cannot be read.
pub(crate) fn resident_bytes() -> Option<u64> {
    kib_of(&std::fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// Most memory of this process so far; `None` if it cannot be read.
pub(crate) fn peak_memory_bytes() -> Option<u64> {
    kib_of(&std::fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_children_count_when_they_have_ended() {
        let stat = "7 (a (b) c) S 3 7 7 0 -1 0 0 0 0 0 10 20 300 4000 20 0 1 0 9";
        assert_eq!(parse_stat(stat), Some((3, 4330)));
        assert_eq!(parse_stat("nonsense"), None);
    }

    #[test]
    fn calls_are_read_as_the_kernel_tells_them() {
        let told = "rchar: 1\nwchar: 323934931\nsyscr: 2\nsyscw: 632687\nwrite_bytes: 7\n";
        let io = Io { read_calls: 2, write_calls: 632_687, written_bytes: 323_934_931 };
        assert_eq!((parse_io(told), parse_io("wchar: x")), (Some(io), None));
        let earlier = Io { read_calls: 1, write_calls: 600_000, written_bytes: 3 };
        assert_eq!(io.since(earlier).plus(earlier), io);
    }
}
