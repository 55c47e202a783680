//! A short run against hostile servers; `cargo xtask hostile` does a long one.

use holdfast_testkit::hostile::{Plan, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_servers_break_no_rule() {
    let plan = Plan { seed: 1, first: 0, streams: 60, at_once: 4, loaded: 2 };
    let report = run(&plan, |_| {}).await;
    assert!(report.failures.is_empty(), "{report}");
    let total = report.total();
    assert_eq!(total.streams, plan.streams);
    assert!(total.accepted > 0 && total.accepted < total.streams && total.restored > 0, "{report}");
}
