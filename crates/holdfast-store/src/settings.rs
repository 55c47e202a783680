//! Settings of the whole installation, as pairs of name and value.

use crate::{Result, Tx};

pub async fn find(tx: &mut Tx, name: &str) -> Result<Option<String>> {
    let row = fetch_optional!(tx, (String,), "SELECT value FROM settings WHERE name = $1", name)?;
    Ok(row.map(|(value,)| value))
}

pub async fn write(tx: &mut Tx, name: &str, value: &str) -> Result<()> {
    execute!(
        tx,
        "INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        name,
        value
    )?;
    Ok(())
}

/// Changes a value if it is still `from` (`None`: not set). Of two concurrent calls, only one returns true.
pub async fn swap(tx: &mut Tx, name: &str, from: Option<&str>, to: &str) -> Result<bool> {
    let changed = match from {
        Some(from) => execute!(tx, "UPDATE settings SET value = $1 WHERE name = $2 AND value = $3", to, name, from)?,
        None => {
            let sql = "INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING";
            execute!(tx, sql, name, to)?
        }
    };
    Ok(changed == 1)
}
