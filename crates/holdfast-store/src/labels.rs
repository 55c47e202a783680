//! Labels of what people edit. They need not be unique; a request can ask for a label that nothing else has.

use holdfast_core::ids::UserId;

use crate::{Result, Tx};

/// What has a label.
#[derive(Debug, Clone, Copy)]
pub enum Labelled {
    Tag,
    Stream,
    Server,
    Destination,
    Task,
}

/// Whether something of this kind and owner has the label. Others who ask the same for this owner wait until the
/// transaction ends, so that what it inserts afterwards is the only one.
pub async fn is_taken(tx: &mut Tx, kind: Labelled, owner: UserId, label: &str) -> Result<bool> {
    execute!(tx, "UPDATE users SET updated_at = updated_at WHERE id = $1", owner.0)?;
    let sql = match kind {
        Labelled::Tag => "SELECT EXISTS (SELECT 1 FROM tags WHERE user_id = $1 AND label = $2)",
        Labelled::Stream => "SELECT EXISTS (SELECT 1 FROM notification_streams WHERE user_id = $1 AND label = $2)",
        Labelled::Server => "SELECT EXISTS (SELECT 1 FROM remote_servers WHERE user_id = $1 AND label = $2)",
        Labelled::Destination => "SELECT EXISTS (SELECT 1 FROM backup_destinations WHERE user_id = $1 AND label = $2)",
        Labelled::Task => "SELECT EXISTS (SELECT 1 FROM backup_tasks WHERE user_id = $1 AND label = $2)",
    };
    fetch_scalar!(tx, bool, sql, owner.0, label)
}
