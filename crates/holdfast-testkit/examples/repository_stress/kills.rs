//! Kills backups, prunes and checks at random moments, and has restic check everything after each kill.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use holdfast_testkit::random;

use crate::step::{Scene, snapshots};

/// How many files there are, and how many of them change before each backup.
const FILES: u64 = 120;
const CHANGED: u64 = 40;

/// A generator of numbers that is the same for the same seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        // The constants of Knuth's MMIX.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

pub fn run(count: usize, seed: u64) {
    let (scene, mut numbers) = (Scene::new(), Numbers(seed));
    let (mut killed, mut finished) = ([0_usize; 3], [0_usize; 3]);
    // What must be there: every backup that was reported, until it is removed on purpose.
    let mut stored: BTreeSet<String> = BTreeSet::new();
    let mut usual = [Duration::from_millis(800); 3];
    change(&scene, &mut numbers);
    while killed.iter().sum::<usize>() < count {
        let which = [0, 0, 1, 1, 2][numbers.below(5) as usize];
        let what = ["backup", "prune", "check"][which];
        if which == 0 {
            change(&scene, &mut numbers);
        }
        if which == 1 && stored.len() > 3 {
            let removed = stored.iter().nth(numbers.below(stored.len() as u64) as usize).cloned().expect("one of them");
            std::fs::remove_file(scene.repository().join("snapshots").join(&removed)).expect("a snapshot");
            stored.remove(&removed);
        }
        if which > 0 && stored.is_empty() {
            continue;
        }
        let begun = Instant::now();
        let mut step = scene.step(what).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a process");
        // A little longer than it usually takes, so that some end by themselves.
        let limit = usual[which].mul_f64(1.1).as_millis() as u64;
        let moment = Duration::from_micros(numbers.below(limit * 1000));
        while begun.elapsed() < moment && step.try_wait().expect("our own process").is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let was_killed = step.try_wait().expect("our own process").is_none();
        if was_killed {
            step.kill().expect("our own process");
        }
        let output = step.wait_with_output().expect("our own process");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if let Some(locator) = text.lines().find_map(|line| line.strip_prefix("stored ")) {
            stored.insert(locator.rsplit('/').next().expect("a name").to_owned());
        }
        if was_killed {
            killed[which] += 1;
        } else {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{what} failed: {errors}");
            finished[which] += 1;
            usual[which] = begun.elapsed();
        }
        // A backup whose end was not reported any more may be there all the same, and is complete then.
        let there: BTreeSet<String> = snapshots(&scene.repository()).into_iter().collect();
        let lost: Vec<&String> = stored.difference(&there).collect();
        assert!(lost.is_empty(), "{what} lost {lost:?}");
        stored = there;
        if !scene.repository().join("config").exists() {
            continue;
        }
        let check = scene.restic().args(["--no-lock", "check", "--read-data"]).output().expect("restic");
        let told = String::from_utf8_lossy(&check.stdout).into_owned() + &String::from_utf8_lossy(&check.stderr);
        assert!(check.status.success(), "after {what}, {} kills: {told}", killed.iter().sum::<usize>());
        let sum = killed.iter().sum::<usize>();
        if was_killed && sum.is_multiple_of(25) {
            println!("{sum} kills; backups {}, prunes {}, checks {}", killed[0], killed[1], killed[2]);
        }
    }
    compare(&scene);
    println!(
        "killed: {} backups, {} prunes, {} checks; ended by themselves: {}, {}, {}. restic check --read-data was clean \
         after each of them, and no reported backup was lost.",
        killed[0], killed[1], killed[2], finished[0], finished[1], finished[2]
    );
}

/// Writes some of the files anew, and removes one.
fn change(scene: &Scene, numbers: &mut Numbers) {
    for _ in 0..CHANGED {
        let file = numbers.below(FILES);
        let folder = scene.source().join((file % 7).to_string());
        std::fs::create_dir_all(&folder).expect("our own folder");
        let bytes = random(numbers.below(1 << 30), 1000 + numbers.below(200_000) as usize);
        std::fs::write(folder.join(file.to_string()), bytes).expect("our own file");
    }
    let file = numbers.below(FILES);
    // It may not be there.
    let _absent = std::fs::remove_file(scene.source().join((file % 7).to_string()).join(file.to_string()));
}

/// After all that, a backup, a prune and a check work, and restic restores what is there.
fn compare(scene: &Scene) {
    for what in ["backup", "prune", "check"] {
        let output = scene.step(what).output().expect("a process");
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let locks = std::fs::read_dir(scene.repository().join("locks")).into_iter().flatten().count();
    println!("locks that are left: {locks}");
    let target = scene.folder.path().join("restored");
    let restored = scene.restic().args(["restore", "latest", "--target"]).arg(&target).output().expect("restic");
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    let source = scene.source();
    let below = target.join(source.strip_prefix("/").expect("an absolute path"));
    let mut files = 0;
    for folder in std::fs::read_dir(&source).expect("our own folder") {
        let folder = folder.expect("our own folder");
        for file in std::fs::read_dir(folder.path()).expect("our own folder") {
            let file = file.expect("our own file");
            let name = below.join(folder.file_name()).join(file.file_name());
            let read = |path: &std::path::Path| {
                let mut bytes = Vec::new();
                std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)).expect("a file");
                bytes
            };
            assert!(read(&file.path()) == read(&name), "{} differs", name.display());
            files += 1;
        }
    }
    println!("{files} files are as they were.");
}
