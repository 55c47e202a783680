//! Tests that run once on each database.

/// Runs one async test body on SQLite and on PostgreSQL, as two tests.
#[macro_export]
macro_rules! on_both_engines {
    ($($(#[$meta:meta])* async fn $name:ident($app:ident: $type:ty) $body:block)*) => {$(
        $(#[$meta])*
        mod $name {
            use super::*;

            async fn check($app: $type) $body

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                check($crate::TestApp::start($crate::Engine::Sqlite).await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                check($crate::TestApp::start($crate::Engine::Postgres).await).await;
            }
        }
    )*};
}
