//! Describes the machine that a bench ran on. What the system does not report is an empty string.

use std::fs;

use serde::Serialize;

/// The machine a bench ran on.
#[derive(Debug, Clone, Serialize)]
pub struct BenchMachine {
    pub date: String,
    pub kernel: String,
    pub processor: String,
    pub processors: usize,
    pub memory_gib: f64,
    /// The load before the bench: the figures of a busy machine are unreliable.
    pub load: String,
}

/// Returns the facts of this machine.
pub fn describe_machine() -> BenchMachine {
    let uname = rustix::system::uname();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(": "));
    BenchMachine {
        date: date(std::time::SystemTime::now()),
        kernel: format!("{} {}", uname.release().to_string_lossy(), uname.machine().to_string_lossy()),
        processor: model.map_or_else(String::new, |(_, model)| model.to_owned()),
        processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        memory_gib: read_kib("/proc/meminfo", "MemTotal:").unwrap_or(0.0) / 1024.0 / 1024.0,
        load: fs::read_to_string("/proc/loadavg").unwrap_or_default().split(' ').next().unwrap_or("").to_owned(),
    }
}

impl BenchMachine {
    /// Returns the facts in one line.
    pub fn text(&self) -> String {
        let Self { date, kernel, processor, processors, memory_gib, load } = self;
        format!("{date} · Linux {kernel} · {processors} × {processor} · {memory_gib:.0} GiB · load {load}")
    }
}

/// Returns one value, in KiB, from a `/proc` file.
pub fn read_kib(file: &str, name: &str) -> Option<f64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

/// Returns the date as `YYYY-MM-DD`.
fn date(now: std::time::SystemTime) -> String {
    let days = now.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400);
    let (mut year, mut left) = (1970, days);
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while left >= 365 + u64::from(leap(year)) {
        left -= 365 + u64::from(leap(year));
        year += 1;
    }
    let months = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for days in months {
        if left < days {
            break;
        }
        left -= days;
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}", left + 1)
}
