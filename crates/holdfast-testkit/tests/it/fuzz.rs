//! A fixed number of the same inputs every time, so that the result does not depend on the machine.

use holdfast_testkit::fuzz::{FuzzTarget, TARGETS};

const SEED: u64 = 1;

fn pass(name: &str) {
    let target = FuzzTarget::named(name).expect("a known target");
    for (path, case) in target.cases() {
        if let Err(message) = target.check(&case) {
            panic!("{name}: the case {path} fails again: {message}");
        }
    }
    let mut accepted = 0;
    for number in 0..target.test_inputs {
        match target.check(&target.input(SEED, number)) {
            Ok(was_accepted) => accepted += u64::from(was_accepted),
            Err(message) => panic!("{name}: input {number} of seed {SEED} fails: {message}"),
        }
    }
    let refused = target.test_inputs - accepted;
    assert!(accepted > 0 && refused > 0, "{name}: {accepted} inputs were accepted and {refused} refused");
}

macro_rules! passes {
    ($($test:ident = $name:literal),* $(,)?) => {
        $(#[test]
        fn $test() {
            pass($name);
        })*

        #[test]
        fn every_target_has_a_test() {
            let tested = [$($name),*];
            assert!(TARGETS.iter().all(|target| tested.contains(&target.name)));
        }
    };
}

passes! {
    tar_archives_are_read_and_written_alike = "tar",
    nothing_that_a_selection_passes_leaves_the_target = "selection",
    dumps_of_one_database_are_read_to_their_end = "pg-dump",
    dumps_of_whole_servers_are_checked_alike_in_pieces = "cluster-dump",
    no_name_of_a_server_leaves_its_quotes = "globals",
    dumps_of_mysql_are_rewritten_alike_in_pieces = "mysql-dump",
    dumps_of_vanguard_are_read_or_refused = "vanguard",
    listings_are_counted_alike_in_pieces = "listing",
    cron_expressions_have_slots_in_order = "cron",
    only_trusted_proxies_name_the_client = "forwarded",
    replies_over_sftp_hold_no_more_than_came = "sftp",
    archives_are_read_or_refused = "archive",
    sealed_archives_are_read_or_refused = "sealed",
    documents_are_read_or_refused = "document",
}

#[test]
fn an_input_depends_on_seed_and_number_alone() {
    for target in TARGETS {
        assert_eq!(target.input(7, 3), target.input(7, 3), "{}", target.name);
    }
}
