//! Incidents: backups of several tasks that fail for one cause are reported together.

use crate::failure::{Blame, FailureCode};
use crate::ids::{DestinationId, ServerId, TaskId};

/// How long ago failures may have been to count as one incident: longer than the usual wait before a retry, and shorter
/// than the shortest period of most schedules.
pub const WINDOW_SECS: i64 = 600;
/// How long after a message about an incident users may be told that it has grown.
pub const TELL_AGAIN_SECS: i64 = 3600;
/// How many times as many tasks must be affected for that.
pub const TELL_AGAIN_GROWTH: i64 = 2;

/// Where the common cause is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncidentPlace {
    Server(ServerId),
    /// Several servers, and therefore probably the network or what they share.
    Servers,
    Destination(DestinationId),
    /// Holdfast itself: a worker was lost, or none was running.
    Service,
}

/// A task that fails, and what it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailingTask {
    pub task: TaskId,
    pub server: ServerId,
    pub destination: DestinationId,
}

/// Where tasks that fail with one code can have a cause in common.
#[derive(Debug, Clone, Copy)]
struct Scope {
    server: bool,
    servers: bool,
    destination: bool,
    service: bool,
}

impl Scope {
    fn of(code: FailureCode) -> Self {
        let none = Self { server: false, servers: false, destination: false, service: false };
        match code.blames() {
            // Each changed key needs its own decision.
            Blame::Connection => Self { server: true, servers: code != FailureCode::HostKeyChanged, ..none },
            Blame::Transfer => Self { server: true, servers: true, destination: true, ..none },
            Blame::Server => Self { server: true, ..none },
            Blame::Destination => Self { destination: true, ..none },
            Blame::Service => Self { service: matches!(code, FailureCode::WorkerLost | FailureCode::Missed), ..none },
            Blame::Backup | Blame::Content | Blame::Request | Blame::Channel => none,
        }
    }
}

/// Whether failures with this code can have a cause in common with those of other tasks.
pub fn can_be_shared(code: FailureCode) -> bool {
    let Scope { server, servers, destination, service } = Scope::of(code);
    server || servers || destination || service
}

impl IncidentPlace {
    /// Whether the failure of a task with this code can have its cause here.
    pub fn explains(self, code: FailureCode, failing: FailingTask) -> bool {
        let scope = Scope::of(code);
        match self {
            Self::Server(id) => scope.server && id == failing.server,
            Self::Servers => scope.servers,
            Self::Destination(id) => scope.destination && id == failing.destination,
            Self::Service => scope.service,
        }
    }
}

/// Whether a failure begins an incident, and where. `recent` are the tasks of the same user that fail with the same
/// code at the moment, including this one; `least` is how many of them make an incident.
pub fn begins(
    code: FailureCode,
    failing: FailingTask,
    recent: &[FailingTask],
    least: usize,
) -> Option<(IncidentPlace, Vec<TaskId>)> {
    let scope = Scope::of(code);
    let is_on_many = recent.iter().any(|other| other.server != failing.server);
    let is_at_one = recent.iter().all(|other| other.destination == failing.destination);
    let places = [
        // What fails on many servers but at one destination is the destination's fault, if it can be.
        (scope.destination && (!scope.server || is_on_many && is_at_one))
            .then_some(IncidentPlace::Destination(failing.destination)),
        (scope.servers && is_on_many).then_some(IncidentPlace::Servers),
        scope.server.then_some(IncidentPlace::Server(failing.server)),
        scope.service.then_some(IncidentPlace::Service),
    ];
    places.into_iter().flatten().find_map(|place| {
        let affected = recent.iter().filter(|other| place.explains(code, **other));
        let tasks: Vec<TaskId> = affected.map(|other| other.task).collect();
        (least > 0 && tasks.len() >= least).then_some((place, tasks))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(task: i64, server: i64, destination: i64) -> FailingTask {
        FailingTask { task: TaskId(task), server: ServerId(server), destination: DestinationId(destination) }
    }

    /// Where an incident of these tasks is; the last one has just failed.
    fn place(code: FailureCode, tasks: &[FailingTask]) -> Option<IncidentPlace> {
        begins(code, *tasks.last().unwrap(), tasks, 3).map(|(place, affected)| {
            assert!(affected.contains(&tasks.last().unwrap().task) && affected.len() >= 3);
            place
        })
    }

    #[test]
    fn three_tasks_with_one_cause_are_an_incident_and_two_are_not() {
        let of_server = [task(1, 7, 1), task(2, 7, 2), task(3, 7, 3)];
        assert_eq!(place(FailureCode::Timeout, &of_server), Some(IncidentPlace::Server(ServerId(7))));
        assert_eq!(place(FailureCode::ToolMissing, &of_server), Some(IncidentPlace::Server(ServerId(7))));
        assert_eq!(place(FailureCode::DestinationFull, &of_server), None);
        assert_eq!(place(FailureCode::Timeout, &of_server[..2]), None);
        assert_eq!(begins(FailureCode::Timeout, of_server[0], &of_server, 0), None, "switched off");
    }

    #[test]
    fn what_fails_on_several_servers_is_one_incident() {
        let scattered = [task(1, 1, 5), task(2, 2, 6), task(3, 3, 5)];
        for code in [FailureCode::Connect, FailureCode::Timeout, FailureCode::Dns, FailureCode::Lost] {
            assert_eq!(place(code, &scattered), Some(IncidentPlace::Servers), "{code:?}");
        }
        assert_eq!(place(FailureCode::HostKeyChanged, &scattered), None, "each needs a decision");
        assert_eq!(place(FailureCode::ToolMissing, &scattered), None);
        let some = [task(1, 1, 5), task(2, 2, 6), task(3, 2, 5)];
        assert_eq!(place(FailureCode::Connect, &some), Some(IncidentPlace::Servers));
    }

    #[test]
    fn what_fails_at_one_destination_is_its_fault() {
        let at_one = [task(1, 1, 5), task(2, 2, 5), task(3, 3, 5)];
        let destination = Some(IncidentPlace::Destination(DestinationId(5)));
        assert_eq!(place(FailureCode::DestinationFull, &at_one), destination);
        assert_eq!(place(FailureCode::Stalled, &at_one), destination);
        assert_eq!(place(FailureCode::Connect, &at_one), Some(IncidentPlace::Servers));
        let mixed = [task(1, 1, 5), task(2, 1, 6), task(3, 1, 5), task(4, 1, 5)];
        assert_eq!(place(FailureCode::DestinationFull, &mixed), destination);
        let (_, affected) = begins(FailureCode::DestinationFull, mixed[3], &mixed, 3).unwrap();
        assert_eq!(affected, [TaskId(1), TaskId(3), TaskId(4)]);
    }

    #[test]
    fn failures_that_concern_one_task_alone_are_never_shared() {
        let all = [task(1, 1, 1), task(2, 1, 1), task(3, 1, 1)];
        for code in FailureCode::ALL {
            assert_eq!(place(*code, &all).is_some(), can_be_shared(*code), "{code:?}");
        }
        assert!(!can_be_shared(FailureCode::Internal) && !can_be_shared(FailureCode::WrongPassword));
    }

    #[test]
    fn what_the_service_itself_causes_is_one_incident_wherever_the_tasks_are() {
        let scattered = [task(1, 1, 5), task(2, 2, 6), task(3, 3, 7)];
        for code in [FailureCode::WorkerLost, FailureCode::Missed] {
            assert_eq!(place(code, &scattered), Some(IncidentPlace::Service), "{code:?}");
            assert_eq!(place(code, &scattered[1..]), None, "{code:?}");
            assert!(IncidentPlace::Service.explains(code, scattered[0]));
        }
        assert!(!IncidentPlace::Service.explains(FailureCode::Connect, scattered[0]));
    }

    #[test]
    fn an_incident_explains_what_can_have_its_cause_there() {
        let servers = IncidentPlace::Servers;
        assert!(servers.explains(FailureCode::Timeout, task(1, 1, 1)));
        assert!(!servers.explains(FailureCode::DestinationFull, task(1, 1, 1)));
        let server = IncidentPlace::Server(ServerId(2));
        assert!(server.explains(FailureCode::Timeout, task(1, 2, 1)));
        assert!(!server.explains(FailureCode::Timeout, task(1, 1, 1)));
    }
}
