//! Metrics of the process itself and of its disk, in the Prometheus text format.

use std::path::PathBuf;

use holdfast_core::clock::{Clock as _, SystemClock};
use holdfast_engine::FreeSpace;

use crate::settings::Settings;

/// When the process started, and the folder whose disk it writes to.
pub struct ProcessFigures {
    started: i64,
    folder: PathBuf,
}

impl ProcessFigures {
    pub fn new(settings: &Settings) -> Self {
        Self { started: SystemClock.now().as_second(), folder: settings.data_dir.clone() }
    }

    /// Figures that the system does not provide are left out.
    pub fn render(&self) -> String {
        let files = std::fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as u64);
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let version = env!("CARGO_PKG_VERSION");
        let mut out = format!(
            "# HELP holdfast_build_info The version of this process.\n# TYPE holdfast_build_info gauge\n\
             holdfast_build_info{{version=\"{version}\"}} 1\n"
        );
        let gauges = [
            ("process_resident_memory_bytes", "Memory of this process.", resident_bytes()),
            ("process_open_fds", "Open files and connections of this process.", files),
            ("process_max_fds", "The most files and connections that this process may have open.", limit),
            ("process_start_time_seconds", "When this process started.", u64::try_from(self.started).ok()),
            (
                "holdfast_data_free_bytes",
                "Free space on the disk of the data folder.",
                FreeSpace::find(&self.folder).map(|space| space.bytes),
            ),
        ];
        for (name, help, value) in gauges {
            if let Some(value) = value {
                out += &format!("# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}\n");
            }
        }
        out
    }
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok()? * 1024)
}
