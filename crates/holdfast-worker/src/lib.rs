//! The control plane: turns due slots into runs, claims runs under a lease, brings each to its end, and tidies up.

mod archives;
mod notices;
mod plans;
mod runs;
mod schedule;
mod services;
mod settings;
mod upkeep;
mod worker;

pub use archives::folder_page::Window;
pub use archives::{ReadingLimits, StoredArchives};
pub use notices::mailer::SenderMailer;
pub use settings::Settings;
pub use upkeep::doctor::{Finding, examine};
pub use worker::{Parts, Worker, supervise};
