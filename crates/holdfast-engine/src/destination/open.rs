//! Opens destinations: the registry of their types. To add a type: a file below this module, and a line in `open` and in
//! `find_marker`.

use std::sync::Arc;

use holdfast_core::destination::{DestinationIdentity, DestinationSpec};
use holdfast_core::failure::FailureCode;

use super::decorators::{Retrying, Throttle, Throttled};
use super::local::Local;
use super::plan::{DestinationPlan, DestinationSettings};
use super::s3::{S3, S3Config};
use super::sftp::Sftp;
use super::store::BlobStore;
use crate::error::{EngineError, Result};

/// A destination that was opened successfully.
pub struct Opened {
    pub store: Arc<dyn BlobStore>,
    pub identity: DestinationIdentity,
}

impl DestinationSettings {
    /// Opens the store, with its decorators. A folder that is used for the first time is marked.
    pub async fn open(&self, plan: &DestinationPlan) -> Result<Opened> {
        match &plan.spec {
            DestinationSpec::Local(_) => {
                let (store, marker) = Local::open(&plan.folder, plan.marker.as_deref()).await?;
                let identity = DestinationIdentity { marker: Some(marker), ..DestinationIdentity::default() };
                Ok(Opened { store: self.decorated(store), identity })
            }
            DestinationSpec::S3(settings) | DestinationSpec::CustomS3(settings) => {
                let store = S3::new(S3Config {
                    endpoint: settings.endpoint.clone(),
                    bucket: settings.bucket.clone(),
                    region: settings.region.clone(),
                    path_style: settings.path_style,
                    access_key: plan.access_key.clone().unwrap_or_default(),
                    secret_key: plan.secret_key.clone().unwrap_or_default(),
                    ca_pem: self.ca_pem.clone(),
                    egress: self.egress(plan),
                    timeout: self.request_timeout,
                    stall: self.stall,
                    parts: self.parts,
                })?;
                Ok(Opened { store: self.decorated(store), identity: DestinationIdentity::default() })
            }
            DestinationSpec::Sftp(settings) => {
                // Boxed because connecting is a large future, and nearly every operation opens a destination.
                let (store, identity) = Box::pin(Sftp::open(settings, plan, self)).await?;
                Ok(Opened { store: self.decorated(store), identity })
            }
        }
    }

    /// Opens a store that was used before. Only checks and backups call `open`, because they record what identifies the
    /// destination; everything else must find it as recorded.
    pub async fn open_known(&self, plan: &DestinationPlan) -> Result<Opened> {
        if plan.spec.sftp().is_some_and(|sftp| sftp.host_key.is_none()) {
            let message = "The host key of the destination's server is not known yet. Check the destination first.";
            return Err(EngineError::new(FailureCode::DestinationFailed, message));
        }
        if !plan.is_untouched() {
            return Box::pin(self.open(plan)).await;
        }
        // Boxed for the same reason as connecting.
        let marker = Box::pin(self.find_marker(plan)).await?;
        Box::pin(self.open(&DestinationPlan { marker, ..plan.clone() })).await
    }

    /// Reads the marker of a destination that was used before, without writing to it; `None` for kinds that have no
    /// marker.
    pub async fn find_marker(&self, plan: &DestinationPlan) -> Result<Option<String>> {
        match &plan.spec {
            DestinationSpec::Local(_) => Local::find_marker(&plan.folder).map(Some),
            DestinationSpec::S3(_) | DestinationSpec::CustomS3(_) => Ok(None),
            DestinationSpec::Sftp(settings) => Sftp::find_marker(settings, plan, self).await.map(Some),
        }
    }

    fn decorated(&self, store: impl BlobStore + 'static) -> Arc<dyn BlobStore> {
        let retrying = Arc::new(Retrying::new(store, self.retry));
        if self.bytes_per_second == 0 {
            return retrying;
        }
        Arc::new(Throttled::new(retrying, Throttle::new(self.bytes_per_second)))
    }
}
