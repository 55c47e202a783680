//! The health of tasks: good, failed, overdue, paused, running and so on.

use holdfast_core::failure::FailureCode;
use holdfast_core::ids::{TaskId, UserId};
use holdfast_core::run::RunStatus;
use holdfast_core::task_health::{Facts, TaskHealth};
use sqlx::QueryBuilder;

use crate::statement::{Statement as _, decode_all};
use crate::tx::push_ids;
use crate::{DbTime, Result, Tx};

// A task is running while it has a live run; that is looked up, not stored, so that it cannot be out of date.
macro_rules! is_live {
    () => {
        "EXISTS (SELECT 1 FROM runs r WHERE r.task_id = t.id AND r.status IN ('queued', 'running'))"
    };
}

named_row! {
    /// What a task's health is derived from.
    #[derive(Debug, Clone)]
    pub struct TaskHealthRow {
        pub id: TaskId,
        pub last_run_id: Option<i64>,
        last_status: Option<String>,
        last_error_code: Option<String>,
        pub last_warnings: i64,
        pub last_success_at: Option<DbTime>,
        pub overdue_since: Option<DbTime>,
        pub paused_at: Option<DbTime>,
        pub proven_at: Option<DbTime>,
        pub is_live: bool,
    }
}

impl TaskHealthRow {
    pub fn last_status(&self) -> Option<RunStatus> {
        self.last_status.as_deref().and_then(RunStatus::parse)
    }

    pub fn last_error_code(&self) -> Option<FailureCode> {
        self.last_error_code.as_deref().and_then(FailureCode::parse)
    }

    pub fn health(&self) -> TaskHealth {
        TaskHealth::of(Facts {
            is_running: self.is_live,
            is_paused: self.paused_at.is_some(),
            is_overdue: self.overdue_since.is_some(),
            has_failed: self.last_status().map(|status| status == RunStatus::Failed),
            has_warnings: self.last_warnings > 0,
        })
    }
}

/// The health of these tasks.
pub async fn list(tx: &mut Tx, tasks: &[i64]) -> Result<Vec<TaskHealthRow>> {
    if tasks.is_empty() {
        return Ok(Vec::new());
    }
    with_conn!(tx, conn => {
        let mut query = QueryBuilder::<Db>::new(concat!(
            "SELECT t.id, t.last_run_id, t.last_status, t.last_error_code, t.last_warnings, t.last_success_at,
                 t.overdue_since, t.paused_at, t.proven_at, ", is_live!(), " AS is_live
             FROM backup_tasks t WHERE t.id IN ("
        ));
        push_ids(&mut query, tasks);
        query.push(")");
        query.build().all(conn).await.and_then(decode_all::<TaskHealthRow, _>)
    })
}

named_row! {
    /// How many of a user's tasks are in the same state. Whether they are running is not considered.
    #[derive(Debug, Clone)]
    pub struct HealthCount {
        last_status: Option<String>,
        is_overdue: bool,
        is_paused: bool,
        has_warnings: bool,
        pub count: i64,
        pub proven: i64,
    }
}

impl HealthCount {
    pub fn health(&self) -> TaskHealth {
        TaskHealth::of(Facts {
            is_running: false,
            is_paused: self.is_paused,
            is_overdue: self.is_overdue,
            has_failed: self.last_status.as_deref().map(|status| status == RunStatus::Failed.as_str()),
            has_warnings: self.has_warnings,
        })
    }
}

pub async fn count(tx: &mut Tx, owner: UserId) -> Result<Vec<HealthCount>> {
    fetch_all!(
        tx,
        HealthCount,
        // Grouped by the index's columns first, which avoids sorting ten thousand rows.
        "SELECT last_status, is_overdue, is_paused, has_warnings, CAST(SUM(count) AS BIGINT) AS count,
             CAST(SUM(proven) AS BIGINT) AS proven
         FROM (SELECT last_status, (overdue_since IS NOT NULL) AS is_overdue, (paused_at IS NOT NULL) AS is_paused,
                 (last_warnings > 0) AS has_warnings, COUNT(*) AS count, COUNT(proven_at) AS proven
             FROM backup_tasks WHERE user_id = $1 GROUP BY last_status, overdue_since, paused_at, last_warnings) AS s
         GROUP BY 1, 2, 3, 4",
        owner.0
    )
}

/// Tasks that need attention: failed or overdue, and not paused.
pub async fn list_wanting(tx: &mut Tx, owner: UserId, limit: i64) -> Result<Vec<i64>> {
    let rows = fetch_all!(
        tx,
        (i64,),
        "SELECT id FROM backup_tasks
         WHERE user_id = $1 AND paused_at IS NULL AND (last_status = 'failed' OR overdue_since IS NOT NULL)
         ORDER BY id LIMIT $2",
        owner.0,
        limit
    )?;
    Ok(rows.into_iter().map(|(id,)| id).collect())
}
