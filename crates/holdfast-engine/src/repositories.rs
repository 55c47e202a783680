//! What is done with repositories apart from backups and restores.

use holdfast_core::Secret;

use crate::Engine;
use crate::context::Context;
use crate::destination::DestinationPlan;
use crate::error::Result;
use crate::formats::repository::{self, CheckReport, PruneReport};
use crate::plan::{CheckPlan, PrunePlan};

impl Engine {
    /// The folder of a task's first backup in a repository: the one it names if that holds a repository already, which
    /// is then adopted, or else a folder of its own.
    pub async fn find_repository_folder(&self, plan: &DestinationPlan, named: &str, own: &str) -> Result<String> {
        let named = named.split('/').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
        let is_there = repository::is_at(self, plan, &named).await?;
        Ok(if is_there { named } else { own.to_owned() })
    }

    /// Whether this password opens the repository in a folder.
    pub async fn opens_repository(&self, plan: &DestinationPlan, folder: &str, password: &Secret) -> Result<bool> {
        repository::opens_with(self, plan, folder, password).await
    }

    /// Removes from a repository what no snapshot needs any more.
    pub async fn prune(&self, plan: &PrunePlan, context: &Context) -> Result<PruneReport> {
        repository::prune(self, plan, context).await
    }

    /// Checks the structure of a repository, reads a share of its packs, and repairs what can be.
    pub async fn check_repository(&self, plan: &CheckPlan, context: &Context) -> Result<CheckReport> {
        repository::check(self, plan, context).await
    }
}
