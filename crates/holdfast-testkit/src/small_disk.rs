//! A small file system that soon fills up.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Unmounted when it is dropped.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` if this user may not mount.
    pub fn mount(folder: &Path, size: &str) -> Option<Self> {
        std::fs::create_dir_all(folder).expect("a folder to mount on");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(folder).output();
        mounted.is_ok_and(|output| output.status.success()).then(|| Self(folder.to_owned()))
    }

    pub fn remount(&self, options: &str) {
        let done = Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(&self.0).status();
        assert!(done.is_ok_and(|status| status.success()), "{} cannot be mounted again", self.0.display());
    }

    /// Writes a file until there is no room left, and returns its path.
    pub fn fill(&self) -> PathBuf {
        let path = self.0.join("filler");
        let mut file = std::fs::File::create(&path).expect("a new file");
        while std::io::Write::write_all(&mut file, &[1; 65_536]).is_ok() {}
        while std::io::Write::write_all(&mut file, &[1; 512]).is_ok() {}
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let done = Command::new("umount").arg("--lazy").arg(&self.0).status();
        assert!(done.is_ok_and(|status| status.success()), "{} is still mounted", self.0.display());
    }
}
