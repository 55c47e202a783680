//! The control plane: turns due slots into runs, claims runs under a lease, brings each to its end, and tidies up.

mod background;
mod backup_reader;
mod local_space;
mod notices;
mod plans;
mod runs;
mod schedule;
mod services;
mod settings;
mod upkeep;
mod worker;

pub use backup_reader::folder_page::Window;
pub use backup_reader::{EngineReader, ReadingLimits};
pub use notices::mailer::SenderMailer;
pub use settings::Settings;
pub use upkeep::doctor::{Finding, check_installation};
pub use worker::{Parts, Worker, supervise};
