//! Work beside the runs: each kind has a place of its own, because destinations may be slow to answer and summaries may
//! take long, and nothing else is to wait for them.

use holdfast_app::Result;
use holdfast_store::queue::Waiting;
use tokio::task::JoinSet;

use crate::notices::weekly_summary;
use crate::services::Services;
use crate::upkeep::{catalogue, daily_stats, removal};

/// One kind of background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BackgroundWork {
    WeeklySummaries,
    Removals,
    Catalogues,
    /// What unfinished runs left at destinations.
    LeftUploads,
    /// Not due at any moment: the worker starts it now and then.
    DailyStats,
}

/// Kinds whose due work is found by a query.
const LOOKED_FOR: [BackgroundWork; 4] = [
    BackgroundWork::WeeklySummaries,
    BackgroundWork::Removals,
    BackgroundWork::Catalogues,
    BackgroundWork::LeftUploads,
];

impl BackgroundWork {
    fn is_due(self, waiting: Waiting) -> bool {
        match self {
            Self::WeeklySummaries => waiting.has_summary,
            Self::Removals => waiting.has_removal,
            Self::Catalogues => waiting.has_catalogue,
            Self::LeftUploads => waiting.has_upload,
            Self::DailyStats => false,
        }
    }

    async fn run(self, services: &Services) -> Result<()> {
        match self {
            Self::WeeklySummaries => weekly_summary::write_due(services).await,
            Self::Removals => removal::remove_deleted(services).await,
            Self::Catalogues => catalogue::write_due(&services.app, &services.engine, &services.planner).await,
            Self::LeftUploads => removal::clear_uploads(services).await,
            Self::DailyStats => daily_stats::write(&services.app).await,
        }
    }
}

/// The background work in progress. Dropping it aborts that: it is on record, and continues after the next start.
#[derive(Default)]
pub(crate) struct Background {
    removals: JoinSet<()>,
    uploads: JoinSet<()>,
    catalogues: JoinSet<()>,
    /// Weekly summaries and daily statistics, which read the same rows.
    statistics: JoinSet<()>,
}

impl Background {
    fn place(&mut self, work: BackgroundWork) -> &mut JoinSet<()> {
        match work {
            BackgroundWork::WeeklySummaries | BackgroundWork::DailyStats => &mut self.statistics,
            BackgroundWork::Removals => &mut self.removals,
            BackgroundWork::Catalogues => &mut self.catalogues,
            BackgroundWork::LeftUploads => &mut self.uploads,
        }
    }

    /// Starts what is due.
    pub(crate) fn start_due(&mut self, services: &Services, waiting: Waiting) {
        for work in LOOKED_FOR.into_iter().filter(|work| work.is_due(waiting)) {
            self.start(services, work);
        }
    }

    /// Starts this work, unless its place is taken.
    pub(crate) fn start(&mut self, services: &Services, work: BackgroundWork) {
        let place = self.place(work);
        while place.try_join_next().is_some() {}
        if place.is_empty() {
            let services = services.clone();
            place.spawn(async move {
                if let Err(error) = work.run(&services).await {
                    tracing::error!(?error, ?work, "background work failed; trying again later");
                }
            });
        }
    }
}

/// Does everything that is due, one after the other. Tests call this in place of waiting.
pub(crate) async fn run_due(services: &Services, waiting: Waiting) -> Result<()> {
    for work in LOOKED_FOR.into_iter().filter(|work| work.is_due(waiting)) {
        work.run(services).await?;
    }
    Ok(())
}
