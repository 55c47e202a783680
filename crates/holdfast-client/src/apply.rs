//! Declarative settings: what a file specifies is compared with what the service has, shown as a plan, and applied on
//! request. Fields are those of the API, except that the file refers to other resources by label where the API uses
//! ids. What the file does not mention stays unchanged, unless the plan is made to delete it.

mod carry_out;
mod export;
mod file;
mod plan;
mod rehearsal;
mod request;
mod shown;
mod step;

pub use export::export;
pub use file::Wanted;
pub use plan::{Kept, Plan, PlanOptions};
pub use step::{Action, Progress, Step};

#[cfg(test)]
mod tests;
