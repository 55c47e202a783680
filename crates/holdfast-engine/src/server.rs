//! Looking at a server: can we get in, and what does it offer?

use crate::Engine;
use crate::context::Context;
use crate::error::Result;
use crate::plan::ServerReport;
use crate::remote::{self, Script, Server, connect};
use crate::source::sftp;

/// Each tool's name and the first line of what it says about its version.
const SCRIPT: &str = r#"
echo "system $(uname -sr 2>/dev/null)"
for t in tar find pg_dump pg_dumpall pg_restore psql mariadb-dump mysqldump mariadb mysql; do
  command -v "$t" >/dev/null 2>&1 || continue
  v=$("$t" --version 2>&1 </dev/null)
  printf '%s %s\n' "$t" "${v%%
*}"
done
"#;

impl Engine {
    /// Connects, asks what is there, and says goodbye. What the server showed is in the context.
    pub async fn check_server(&self, server: &Server, context: &Context) -> Result<ServerReport> {
        let settings = &self.settings.remote;
        let connection = connect(server, settings, context).await?;
        let mut report = ServerReport::default();
        // An account that may run no commands can still be read over SFTP.
        if let Ok(answer) = remote::ask(&connection, settings, context, &Script::new(SCRIPT, &[]), "").await {
            let text = String::from_utf8_lossy(&answer.stdout).into_owned();
            let lines = text.lines().filter_map(|line| line.split_once(' '));
            report.tools = lines.map(|(tool, version)| (tool.to_owned(), version.trim().to_owned())).collect();
        }
        report.has_sftp = sftp::open(&connection, settings, context).await.is_ok();
        remote::leave(connection, context).await;
        Ok(report)
    }
}
