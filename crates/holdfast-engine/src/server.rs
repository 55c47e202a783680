//! Checks a server: whether it accepts the login, and which tools it has.

use holdfast_core::source::SourceSpec;

use crate::Engine;
use crate::context::Context;
use crate::dialects;
use crate::error::Result;
use crate::plan::ServerReport;
use crate::remote::{self, Script, Server, connect};
use crate::source::sftp;

/// Prints each tool's name and the first line of its version output.
const SCRIPT: &str = r#"
echo "system $(uname -sr 2>/dev/null)"
for t in "$@"; do
  command -v "$t" >/dev/null 2>&1 || continue
  v=$("$t" --version 2>&1 </dev/null)
  printf '%s %s\n' "$t" "${v%%
*}"
done
"#;

impl Engine {
    /// Connects, looks for tools and SFTP, and disconnects. What was learnt about the server is in the context.
    pub async fn check_server(&self, server: &Server, context: &Context) -> Result<ServerReport> {
        let settings = &self.settings.remote;
        let connection = connect(server, settings, context).await?;
        let mut report = ServerReport::default();
        // An account that may not run commands can still be read over SFTP.
        let engines = dialects::all().flat_map(|dialect| dialect.tools().all.iter().copied());
        let tools: Vec<&str> = ["tar", "find"].into_iter().chain(engines).collect();
        if let Ok(answer) = remote::ask(&connection, settings, context, &Script::new(SCRIPT, &tools), "").await {
            let text = String::from_utf8_lossy(&answer.stdout).into_owned();
            let lines = text.lines().filter_map(|line| line.split_once(' '));
            report.tools = lines.map(|(tool, version)| (tool.to_owned(), version.trim().to_owned())).collect();
        }
        report.has_sftp = sftp::open(&connection, settings, context).await.is_ok();
        remote::leave(connection, context).await;
        Ok(report)
    }
}

impl ServerReport {
    /// A text for users on what a backup of this source needs and the server does not have. For a database without a
    /// specified engine, the requirements are not known.
    pub fn missing_tool(&self, source: &SourceSpec) -> Option<String> {
        let has = |name: &str| self.tools.iter().any(|(tool, _)| tool == name);
        match source {
            SourceSpec::Files(_) => (!has("tar") && !self.has_sftp).then(|| "tar, or SFTP".to_owned()),
            SourceSpec::Database { engine, .. } => engine.and_then(|engine| dialects::missing_tool(engine, has)),
        }
    }
}
