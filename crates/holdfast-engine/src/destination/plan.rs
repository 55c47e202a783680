//! What is needed to open a destination: the destination itself, and how this installation connects to it.

use std::path::PathBuf;
use std::time::Duration;

use holdfast_core::Secret;
use holdfast_core::destination::{DestinationSpec, LocalDestination};

use super::decorators::RetryPolicy;
use super::parts::PartLimits;
use crate::egress::Egress;
use crate::ssh::KeySeed;

/// A destination, and everything needed to access it.
#[derive(Debug, Clone)]
pub struct DestinationPlan {
    pub spec: DestinationSpec,
    pub access_key: Option<Secret>,
    pub secret_key: Option<Secret>,
    /// The folder of a local destination.
    pub folder: PathBuf,
    /// The content of the folder's marker, set when the folder was first used. An empty mount point has no marker and
    /// is not written to.
    pub marker: Option<String>,
    /// The owner's SSH key, for destinations that authenticate with it.
    pub owner_key: Option<KeySeed>,
    /// Whether the owner may connect to private networks.
    pub allow_private: bool,
}

impl DestinationPlan {
    /// A folder on this machine.
    pub fn local(folder: PathBuf, marker: Option<String>) -> Self {
        Self {
            spec: DestinationSpec::Local(LocalDestination),
            access_key: None,
            secret_key: None,
            folder,
            marker,
            owner_key: None,
            allow_private: false,
        }
    }

    /// Whether the destination is a folder that has not been used yet.
    pub fn is_untouched(&self) -> bool {
        self.spec.has_marker() && self.marker.is_none()
    }
}

/// How this installation connects to destinations.
#[derive(Debug, Clone)]
pub struct DestinationSettings {
    pub egress_allow: Vec<holdfast_core::network::Network>,
    /// Trusted in addition to the system's certificates.
    pub ca_pem: Option<Vec<u8>>,
    pub retry: RetryPolicy,
    /// The time limit for a whole request, which also determines the slowest link that can still transfer a part.
    pub request_timeout: Duration,
    /// Reading a response fails when nothing arrives for this long, or when it is slower on average over this time than
    /// is tolerated from a server.
    pub stall: Duration,
    /// Bytes per second and run; 0 means no limit.
    pub bytes_per_second: u64,
    pub parts: PartLimits,
    /// Parts that are too large for memory are kept here, in unnamed temporary files.
    pub spool_folder: PathBuf,
    /// How long a run waits for the lock of another program on a repository.
    pub lock_limit: Duration,
    /// The name of this installation in locks, for those who wait for them.
    pub lock_hostname: String,
    /// How often a held lock is written again. One of this installation that is older than twice that was left behind.
    pub lock_refresh: Duration,
}

impl Default for DestinationSettings {
    fn default() -> Self {
        Self {
            egress_allow: Vec::new(),
            ca_pem: None,
            retry: RetryPolicy::default(),
            request_timeout: Duration::from_secs(1800),
            stall: Duration::from_secs(600),
            bytes_per_second: 0,
            parts: PartLimits::default(),
            spool_folder: std::env::temp_dir(),
            lock_limit: Duration::from_secs(15 * 60),
            lock_hostname: "holdfast".to_owned(),
            lock_refresh: Duration::from_secs(2 * 60),
        }
    }
}

impl DestinationSettings {
    pub(super) fn egress(&self, plan: &DestinationPlan) -> Egress {
        Egress { allow_private: plan.allow_private, allowed: self.egress_allow.clone() }
    }

    /// Settings with shorter time limits, for checks that a user waits for and that transfer little data.
    pub(crate) fn for_checks(&self) -> Self {
        const ANSWER_WITHIN: Duration = Duration::from_secs(20);
        let retry = RetryPolicy { give_up_after: self.retry.give_up_after.min(ANSWER_WITHIN), ..self.retry };
        Self { request_timeout: self.request_timeout.min(ANSWER_WITHIN), retry, ..self.clone() }
    }
}
