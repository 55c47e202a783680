//! Whose turn it is: fair between users, and no more at once than a server or a user may have.
//!
//! Each queued run has a turn. A user's runs take one turn after the other, starting with the one that is being served
//! now; whoever queues a thousand runs therefore waits behind everybody's first one, and nobody waits for ever.

use std::collections::HashMap;

use crate::ids::{ServerId, UserId};

/// The turn of a new run: not before the one being served, and after the user's own that wait already.
pub fn turn(being_served: Option<i64>, last_of_user: Option<i64>) -> i64 {
    being_served.unwrap_or(0).max(last_of_user.map_or(0, |last| last + 1))
}

/// Long runs at once, over all workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtOnce {
    pub per_server: usize,
    pub per_user: usize,
}

/// Whom a run concerns. Short ones, such as checks, concern nobody and never wait for long ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    pub user: UserId,
    pub server: Option<ServerId>,
}

/// Keeps count of what runs while runs are chosen, in the order of their turns.
pub struct Chooser {
    limits: AtOnce,
    servers: HashMap<ServerId, usize>,
    users: HashMap<UserId, usize>,
}

impl Chooser {
    pub fn new(limits: AtOnce, running: impl IntoIterator<Item = Load>) -> Self {
        let mut chooser = Self { limits, servers: HashMap::new(), users: HashMap::new() };
        for load in running {
            chooser.count(load);
        }
        chooser
    }

    /// Whether the next in line may start now; counts it when it may.
    pub fn may_start(&mut self, load: Option<Load>) -> bool {
        let Some(load) = load else { return true };
        let at_server = load.server.and_then(|server| self.servers.get(&server)).copied().unwrap_or(0);
        let of_user = self.users.get(&load.user).copied().unwrap_or(0);
        let may = of_user < self.limits.per_user && (load.server.is_none() || at_server < self.limits.per_server);
        if may {
            self.count(load);
        }
        may
    }

    fn count(&mut self, load: Load) {
        *self.users.entry(load.user).or_default() += 1;
        if let Some(server) = load.server {
            *self.servers.entry(server).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(user: i64, server: i64) -> Load {
        Load { user: UserId(user), server: Some(ServerId(server)) }
    }

    #[test]
    fn limits_hold_for_each_server_and_each_user() {
        let limits = AtOnce { per_server: 2, per_user: 3 };
        let mut chooser = Chooser::new(limits, [load(1, 1)]);
        assert!(chooser.may_start(Some(load(1, 1))));
        assert!(!chooser.may_start(Some(load(1, 1))), "the server has two");
        assert!(chooser.may_start(Some(load(1, 2))));
        assert!(!chooser.may_start(Some(load(1, 3))), "the user has three");
        assert!(!chooser.may_start(Some(Load { user: UserId(1), server: None })));
        assert!(chooser.may_start(Some(load(2, 4))));
        assert!(chooser.may_start(None), "a check waits for nobody");
    }

    #[test]
    fn a_user_with_a_thousand_runs_waits_behind_everybodys_first() {
        let mut queue: Vec<(i64, i64)> = Vec::new();
        let add = |queue: &mut Vec<(i64, i64)>, user: i64| {
            let last = queue.iter().filter(|(_, of)| *of == user).map(|(turn, _)| *turn).max();
            let turn = turn(queue.iter().map(|(turn, _)| *turn).min(), last);
            queue.push((turn, user));
        };
        for _ in 0..1000 {
            add(&mut queue, 1);
        }
        add(&mut queue, 2);
        queue.sort_by_key(|(turn, _)| *turn);
        let place = queue.iter().position(|(_, user)| *user == 2).unwrap();
        assert_eq!(place, 1);
        // And a stream of newcomers does not starve the one who waits.
        for newcomer in 10..2000 {
            queue.sort_by_key(|(turn, _)| *turn);
            queue.remove(0);
            add(&mut queue, newcomer);
        }
        assert!(queue.iter().filter(|(_, user)| *user == 1).count() < 1000);
    }
}
