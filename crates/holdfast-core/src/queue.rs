//! The order of queued runs: fair between users, and within the limits on concurrent runs per server, per destination
//! and per user.
//!
//! Each run has a turn. A user's runs get consecutive turns, starting at the highest turn served so far. A user with a
//! thousand runs therefore does not delay another user's first run. A user who keeps queueing runs gets a later turn
//! each time, so that nobody waits for ever.

use std::collections::HashMap;

use crate::extent::Extent;
use crate::ids::{DestinationId, RepositoryId, ServerId, TaskId, UserId};

/// The turn of a new run: not before the highest that was served, and for a long run after all of the user's other
/// runs. Short runs need no order among themselves: they have their own places, and a limit for each user. The store
/// computes the same when it inserts a run.
pub fn turn(is_long: bool, highest_served: Option<i64>, last_of_user: Option<i64>) -> i64 {
    let served = highest_served.unwrap_or(0);
    if is_long { served.max(last_of_user.map_or(0, |last| last + 1)) } else { served }
}

/// Limits on concurrent runs, across all workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConcurrencyLimits {
    /// Long runs of one server.
    pub per_server: usize,
    /// Long runs that write to or read from one destination.
    pub per_destination: usize,
    /// Long runs of one user.
    pub per_user: usize,
    /// Short runs of one user.
    pub checks_per_user: usize,
}

/// How limited places are shared: each user may hold `per_user` of them at most, and the last `reserved` ones are for
/// users who hold none. A few users who fill their shares therefore keep nobody else out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    pub per_user: usize,
    pub reserved: usize,
}

impl Share {
    /// Whether a user who holds `own` places may take another one when `free` are left.
    pub fn allows(self, own: usize, free: usize) -> bool {
        let is_reserved = own > 0 && free <= self.reserved;
        free > 0 && own < self.per_user && !is_reserved
    }
}

/// The places available for long runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongRunCapacity {
    pub free: usize,
    /// How many of the free places are for users who have no run under way.
    pub reserved: usize,
}

impl LongRunCapacity {
    /// One of a worker's places is reserved, unless a single user may take all of them anyway.
    pub fn of_worker(free: usize, in_all: usize, limits: ConcurrencyLimits) -> Self {
        Self { free, reserved: usize::from(limits.per_user < in_all) }
    }
}

/// A machine, identified by its address and, once it is known, by its host key: several servers of a user may be the
/// same machine under another name or with another SSH user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    key: Option<String>,
    address: String,
}

impl Host {
    /// `jump` is the address of the jump host, if there is one.
    pub fn new(address: (&str, i64), jump: Option<(&str, i64)>, key: Option<String>) -> Self {
        let text = |(name, port): (&str, i64)| format!("{}:{port}", name.trim_end_matches('.').to_lowercase());
        let through = jump.map(|jump| format!(" via {}", text(jump))).unwrap_or_default();
        Self { key, address: format!("{}{through}", text(address)) }
    }

    /// With the key that the machine has just shown.
    #[must_use]
    pub fn with_key(self, key: Option<String>) -> Self {
        Self { key: key.or(self.key), ..self }
    }

    pub fn is(&self, other: &Self) -> bool {
        self.address == other.address || self.key.is_some() && self.key == other.key
    }

    fn names(&self) -> impl Iterator<Item = &String> {
        [&self.address].into_iter().chain(&self.key)
    }
}

/// How a run uses its server: backups read, restores write. A backup of data that is being restored would be
/// incomplete, and two restores into the same place would get mixed up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    pub extent: Extent,
    pub writes: bool,
}

impl Access {
    fn excludes(&self, other: &Self) -> bool {
        (self.writes || other.writes) && self.extent.overlaps(&other.extent)
    }
}

/// What a long run occupies. Short runs, such as checks, occupy nothing and never wait for long ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    pub user: UserId,
    pub server: Option<ServerId>,
    pub destination: Option<DestinationId>,
    /// `None` for runs that do not touch the data on servers, such as verifications.
    pub access: Option<(Host, Access)>,
    pub repository: Option<RepositoryUse>,
}

/// How a run uses a repository: one that prunes it needs it for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepositoryUse {
    pub repositories: UsedRepositories,
    pub is_exclusive: bool,
}

/// What a run keeps others from using at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UsedRepositories {
    /// Those of a task: it has several if its destination or folder was changed.
    OfTask(TaskId),
    /// One whose task has been deleted.
    One(RepositoryId),
}

/// Decides which queued runs may start, in the order of their turns, and keeps count of what is running.
pub struct Chooser {
    limits: ConcurrencyLimits,
    places: LongRunCapacity,
    servers: HashMap<ServerId, usize>,
    destinations: HashMap<DestinationId, usize>,
    users: HashMap<UserId, usize>,
    /// By user and by each name of a machine. Users never wait for each other's runs: anyone can claim an address.
    in_use: HashMap<(UserId, String), Vec<Access>>,
    /// Whether the use is exclusive.
    repositories: HashMap<UsedRepositories, bool>,
}

impl Chooser {
    pub fn new(limits: ConcurrencyLimits, places: LongRunCapacity, running: impl IntoIterator<Item = Load>) -> Self {
        let mut chooser = Self {
            limits,
            places,
            servers: HashMap::new(),
            destinations: HashMap::new(),
            users: HashMap::new(),
            in_use: HashMap::new(),
            repositories: HashMap::new(),
        };
        for load in running {
            chooser.count(load);
        }
        chooser
    }

    /// Whether the next run in line may start now; if so, it is counted.
    pub fn may_start(&mut self, load: Load) -> bool {
        if self.is_in_use(&load) {
            // Later runs must not overtake it, or it might wait for ever.
            self.reserve(load);
            return false;
        }
        let at_server = load.server.and_then(|server| self.servers.get(&server)).copied().unwrap_or(0);
        let of_user = self.users.get(&load.user).copied().unwrap_or(0);
        let share = Share { per_user: self.limits.per_user, reserved: self.places.reserved };
        let may = share.allows(of_user, self.places.free)
            && (load.server.is_none() || at_server < self.limits.per_server)
            && self.has_room_at_destination(&load)
            && !self.is_kept_for_another_server(at_server, of_user);
        if may {
            self.count(load);
            self.places.free -= 1;
        }
        may
    }

    fn has_room_at_destination(&self, load: &Load) -> bool {
        let Some(destination) = load.destination else { return true };
        self.destinations.get(&destination).copied().unwrap_or(0) < self.limits.per_destination
    }

    /// A user's last place is for a server that has no run under way, so that one or two slow servers do not hold up
    /// the backups of all others.
    fn is_kept_for_another_server(&self, at_server: usize, of_user: usize) -> bool {
        self.limits.per_server < self.limits.per_user && at_server > 0 && of_user + 1 >= self.limits.per_user
    }

    fn is_in_use(&self, load: &Load) -> bool {
        self.is_repository_in_use(load) || self.is_data_in_use(load)
    }

    fn is_repository_in_use(&self, load: &Load) -> bool {
        let Some(wanted) = load.repository else { return false };
        self.repositories.get(&wanted.repositories).is_some_and(|is_exclusive| *is_exclusive || wanted.is_exclusive)
    }

    fn is_data_in_use(&self, load: &Load) -> bool {
        let Some((host, access)) = &load.access else { return false };
        let mut used = host.names().filter_map(|name| self.in_use.get(&(load.user, name.clone()))).flatten();
        used.any(|other| other.excludes(access))
    }

    fn count(&mut self, load: Load) {
        *self.users.entry(load.user).or_default() += 1;
        if let Some(server) = load.server {
            *self.servers.entry(server).or_default() += 1;
        }
        if let Some(destination) = load.destination {
            *self.destinations.entry(destination).or_default() += 1;
        }
        self.reserve(load);
    }

    fn reserve(&mut self, load: Load) {
        if let Some(wanted) = load.repository {
            *self.repositories.entry(wanted.repositories).or_default() |= wanted.is_exclusive;
        }
        let Some((host, access)) = load.access else { return };
        for name in host.names() {
            let used = self.in_use.entry((load.user, name.clone())).or_default();
            // Thousands of runs may wait for the same place.
            if !used.contains(&access) {
                used.push(access.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::database::DatabaseEngine;

    use super::*;

    fn load(user: i64, server: i64) -> Load {
        Load { user: UserId(user), server: Some(ServerId(server)), destination: None, access: None, repository: None }
    }

    fn chooser() -> Chooser {
        let limits = ConcurrencyLimits { per_server: 9, per_destination: 9, per_user: 9, checks_per_user: 1 };
        Chooser::new(limits, LongRunCapacity { free: 9, reserved: 0 }, [])
    }

    fn at(server: i64, writes: bool, extent: Extent) -> Load {
        let host = Host::new((&format!("host-{server}"), 22), None, None);
        Load { access: Some((host, Access { extent, writes })), ..load(1, server) }
    }

    #[test]
    fn one_machine_is_one_place_whatever_it_is_called() {
        let host = |name: &str, key: Option<&str>| Host::new((name, 22), None, key.map(str::to_owned));
        let run = |user: i64, host: Host, writes: bool| Load {
            access: Some((host, Access { extent: Extent::Files("/srv".to_owned()), writes })),
            ..load(user, 1)
        };
        let mut chooser = chooser();
        assert!(chooser.may_start(run(1, host("web.example.org", Some("key")), true)));
        assert!(!chooser.may_start(run(1, host("10.0.0.7", Some("key")), false)), "another name");
        assert!(!chooser.may_start(run(1, host("Web.Example.org.", None), false)), "not seen yet");
        assert!(chooser.may_start(run(1, host("10.0.0.8", Some("other")), false)));
        assert!(chooser.may_start(run(2, host("web.example.org", Some("key")), true)), "somebody else's");
        let through = Host::new(("web.example.org", 22), Some(("jump", 22)), None);
        assert!(!through.is(&host("web.example.org", None)) && through.is(&through.clone()));
    }

    #[test]
    fn a_repository_is_pruned_alone_and_nothing_overtakes_that() {
        let run = |id: i64, is_exclusive: bool| Load {
            repository: Some(RepositoryUse { repositories: UsedRepositories::OfTask(TaskId(id)), is_exclusive }),
            ..load(1, 1)
        };
        let mut chooser = chooser();
        assert!(chooser.may_start(run(1, false)) && chooser.may_start(run(1, false)));
        assert!(!chooser.may_start(run(1, true)), "others use it");
        assert!(!chooser.may_start(run(1, false)), "what came later waits for the prune");
        assert!(chooser.may_start(run(2, true)), "another repository");
        assert!(!chooser.may_start(run(2, false)) && !chooser.may_start(run(2, true)));
    }

    #[test]
    fn what_is_being_restored_is_neither_backed_up_nor_restored_twice() {
        let files = |path: &str| Extent::Files(path.to_owned());
        let of = |engine, name: &str| Extent::Database(engine, Some(name.to_owned()));
        let database = |name: &str| of(None, name);
        let [postgresql, mysql] =
            [DatabaseEngine::Postgresql, DatabaseEngine::Mysql].map(|engine| of(Some(engine), "shop"));
        let overlapping = [
            (files("/srv/www"), files("/srv/www/")),
            (files("/srv/www"), files("/srv//./www/site")),
            (files("/"), files("/srv")),
            (database("shop"), database("shop")),
            (Extent::Database(None, None), database("shop")),
            (Extent::Database(Some(DatabaseEngine::Mysql), None), mysql.clone()),
            (mysql.clone(), database("shop")),
        ];
        for (one, other) in overlapping {
            for (one, other) in [(&one, &other), (&other, &one)] {
                let mut chooser = chooser();
                assert!(chooser.may_start(at(1, true, one.clone())));
                assert!(!chooser.may_start(at(1, false, other.clone())), "{one:?} {other:?}");
                assert!(!chooser.may_start(at(1, true, other.clone())), "{one:?} {other:?}");
                assert!(chooser.may_start(at(2, true, other.clone())), "another server's {other:?}");
            }
        }
        let apart = [
            (files("/srv/www"), files("/srv/www2")),
            (files("/srv/a/x"), files("/srv/b/x")),
            (database("shop"), database("Shop")),
            (files("/shop"), database("shop")),
            (postgresql, mysql),
        ];
        for (one, other) in apart {
            let mut chooser = chooser();
            assert!(chooser.may_start(at(1, true, one.clone())));
            assert!(chooser.may_start(at(1, true, other.clone())), "{one:?} {other:?}");
        }
    }

    #[test]
    fn backups_of_one_thing_run_side_by_side_but_do_not_overtake_a_restore() {
        let shop = || Extent::Database(None, Some("shop".to_owned()));
        let mut chooser = chooser();
        assert!(chooser.may_start(at(1, false, shop())));
        assert!(chooser.may_start(at(1, false, Extent::Database(None, None))));
        assert!(!chooser.may_start(at(1, true, shop())), "a restore waits for the backups under way");
        assert!(!chooser.may_start(at(1, false, shop())), "later backups wait for the restore");
        assert!(chooser.may_start(load(1, 1)), "a verification leaves the server alone");
    }

    #[test]
    fn a_users_last_place_is_for_a_server_with_no_run_under_way() {
        let limits = ConcurrencyLimits { per_server: 2, per_destination: 9, per_user: 4, checks_per_user: 1 };
        let mut chooser = Chooser::new(limits, LongRunCapacity { free: 9, reserved: 0 }, []);
        let taken = [1, 2, 3, 4].map(|server| (0..5).filter(|_| chooser.may_start(load(1, server))).count());
        assert_eq!(taken, [2, 1, 1, 0]);
    }

    #[test]
    fn limits_hold_for_each_server_and_each_user() {
        let limits = ConcurrencyLimits { per_server: 2, per_destination: 9, per_user: 3, checks_per_user: 1 };
        let mut chooser = Chooser::new(limits, LongRunCapacity { free: 9, reserved: 0 }, [load(1, 1)]);
        assert!(chooser.may_start(load(1, 1)));
        assert!(!chooser.may_start(load(1, 1)), "the server has two");
        assert!(chooser.may_start(load(1, 2)));
        assert!(!chooser.may_start(load(1, 3)), "the user has three");
        assert!(!chooser.may_start(Load { server: None, ..load(1, 1) }));
        assert!(chooser.may_start(load(2, 4)));
    }

    #[test]
    fn a_destination_has_no_more_runs_than_it_may() {
        let limits = ConcurrencyLimits { per_server: 9, per_destination: 2, per_user: 9, checks_per_user: 1 };
        let at =
            |server: i64, destination: i64| Load { destination: Some(DestinationId(destination)), ..load(1, server) };
        let mut chooser = Chooser::new(limits, LongRunCapacity { free: 9, reserved: 0 }, [at(1, 5)]);
        assert!(chooser.may_start(at(2, 5)));
        assert!(!chooser.may_start(at(3, 5)), "two use it");
        assert!(chooser.may_start(at(3, 6)), "later runs to another destination do not wait");
        assert!(chooser.may_start(load(1, 4)));
    }

    #[test]
    fn the_last_place_is_for_a_user_with_no_run_under_way() {
        let limits = ConcurrencyLimits { per_server: 10, per_destination: 9, per_user: 4, checks_per_user: 1 };
        let mut chooser = Chooser::new(limits, LongRunCapacity::of_worker(8, 8, limits), []);
        let taken = [1, 2].map(|user| (0..9).filter(|_| chooser.may_start(load(user, user))).count());
        assert_eq!(taken, [4, 3]);
        assert!(chooser.may_start(load(3, 3)), "a third user's run starts");
        assert!(!chooser.may_start(load(4, 4)), "no place is left");
        // Where one user may take every place, none is reserved.
        let limits = ConcurrencyLimits { per_user: 2, ..limits };
        let mut chooser = Chooser::new(limits, LongRunCapacity::of_worker(2, 2, limits), []);
        assert!(chooser.may_start(load(1, 1)) && chooser.may_start(load(1, 2)));
    }

    /// Lets each user in turn take as many places as allowed; returns how many each got.
    fn share_out(share: Share, places: usize, users: usize) -> Vec<usize> {
        let mut taken = vec![0; users];
        for user in 0..users {
            while share.allows(taken[user], places - taken.iter().sum::<usize>()) {
                taken[user] += 1;
            }
        }
        taken
    }

    #[test]
    fn nobody_takes_the_places_of_others() {
        let share = Share { per_user: 4, reserved: 2 };
        assert_eq!(share_out(share, 8, 5), [4, 2, 1, 1, 0]);
        assert_eq!(share_out(share, 1, 2), [1, 0], "a single place is for whoever comes first");
        assert_eq!(share_out(Share { per_user: 4, reserved: 4 }, 16, 5), [4, 4, 4, 1, 1]);
    }

    /// A queue ordered by turns alone.
    #[derive(Default)]
    struct Turns {
        served: Option<i64>,
        last: HashMap<i64, i64>,
        queue: Vec<(i64, i64, i64)>,
        added: i64,
    }

    impl Turns {
        fn add(&mut self, user: i64) {
            let turn = turn(true, self.served, self.last.get(&user).copied());
            self.last.insert(user, turn);
            self.added += 1;
            self.queue.push((turn, self.added, user));
            self.queue.sort_unstable();
        }

        fn serve(&mut self) -> i64 {
            let (turn, _, user) = self.queue.remove(0);
            self.served = self.served.max(Some(turn));
            user
        }
    }

    #[test]
    fn a_user_with_a_thousand_runs_waits_behind_everybodys_first() {
        let mut turns = Turns::default();
        (0..1000).for_each(|_| turns.add(1));
        turns.add(2);
        assert_eq!([turns.serve(), turns.serve(), turns.serve()], [1, 2, 1]);
    }

    #[test]
    fn nobody_waits_for_ever_for_those_who_come_back() {
        let mut turns = Turns::default();
        (0..3).for_each(|_| turns.add(1));
        [2, 3, 4].into_iter().for_each(|user| turns.add(user));
        let mut own = 0;
        for _ in 0..20 {
            let user = turns.serve();
            own += i64::from(user == 1);
            // Every user but the first queues another run as soon as one was served.
            if user != 1 {
                turns.add(user);
            }
        }
        assert_eq!(own, 3);
    }
}
