//! Where runs read and write: the server, and which files or database on it, from their columns.

use holdfast_core::content::Content;
use holdfast_core::extent::Extent;
use holdfast_core::queue::Host;

named_row! {
    /// A server's address and host key; all fields are `None` for runs that need no server.
    #[derive(Debug, Clone)]
    pub(crate) struct HostRow {
        host: Option<String>,
        port: Option<i64>,
        host_key: Option<String>,
        jump_host: Option<String>,
        jump_port: Option<i64>,
    }
}

impl HostRow {
    pub(crate) fn host(&self) -> Option<Host> {
        let address = (self.host.as_deref()?, self.port?);
        Some(Host::new(address, self.jump_host.as_deref().zip(self.jump_port), self.host_key.clone()))
    }
}

/// The columns of [`HostRow`], of the server `s` and its jump server `j`.
macro_rules! host_columns {
    () => {
        "s.host, s.port, s.host_key, j.host AS jump_host, j.port AS jump_port"
    };
}
pub(crate) use host_columns;

/// Where a restore writes on its server.
pub(crate) fn target_extent(path: Option<String>, database: Option<String>, content: Option<&str>) -> Extent {
    match path {
        Some(path) => Extent::Files(path),
        None => Extent::Database(content.and_then(Content::parse).and_then(Content::database_engine), database),
    }
}
