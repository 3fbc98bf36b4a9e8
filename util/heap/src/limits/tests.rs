//! The limits of machines whose files are made up.

use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use super::machine::{PATH, TEXT, memory, memory_below};

/// A folder with files in the places of the kernel's.
struct Machine(PathBuf);

impl Machine {
    /// 1000 KiB, of which 800 are available.
    fn new(name: &str) -> Self {
        let folder = format!("selvedge-heap-{}-{name}", std::process::id());
        let machine = Self(std::env::temp_dir().join(folder));
        machine.with("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 800 kB\n")
    }

    fn with(self, path: &str, text: &str) -> Self {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    /// Total and available memory in KiB.
    fn memory(&self) -> (usize, usize) {
        let mut scratch = vec![0; 3 * PATH + TEXT];
        let memory = memory_below(self.0.as_os_str().as_bytes(), &mut scratch);
        (memory.total >> 10, memory.available >> 10)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn the_memory_of_this_process_is_found() {
    let memory = memory().unwrap();
    assert!(memory.total > 0 && memory.available <= memory.total);
}

#[test]
fn promised_memory_is_a_limit_if_the_kernel_keeps_its_promises() {
    let text = "MemTotal: 1000 kB\nMemAvailable: 800 kB\nCommitLimit: 500 kB\n\
                Committed_AS: 400 kB\n";
    let machine = Machine::new("overcommit").with("proc/meminfo", text);
    assert_eq!(machine.memory(), (1000, 800));
    let machine = machine.with("proc/sys/vm/overcommit_memory", "1\n");
    assert_eq!(machine.memory(), (1000, 800));
    let machine = machine.with("proc/sys/vm/overcommit_memory", "2\n");
    assert_eq!(machine.memory(), (500, 100));
    let machine = machine.with("proc/meminfo", &text.replace("400", "600"));
    assert_eq!(machine.memory(), (500, 0));
}

#[test]
fn files_that_are_missing_or_nonsense_limit_nothing() {
    let unlimited = (usize::MAX >> 10, usize::MAX >> 10);
    let machine = Machine::new("nonsense").with("proc/sys/vm/overcommit_memory", "2");
    let machine = machine.with("proc/meminfo", "");
    assert_eq!(machine.memory(), unlimited);
    let machine = machine.with("proc/meminfo", "MemTotal: x kB\nMemAvailable:\n\0\n");
    assert_eq!(machine.memory(), unlimited);
    let machine = machine.with("proc/meminfo", "MemAvailable: 99999999999999999999 kB");
    assert_eq!(machine.memory(), unlimited);
}

const V1_MOUNTS: &str = "24 1 0:22 / /proc rw - proc proc rw\n\
    35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:1 - cgroup cgroup rw,memory\n";

/// A group of version 1, with numbers in KiB.
fn with_v1(machine: Machine, folder: &str, limit: u64, usage: u64, cache: u64) -> Machine {
    let bytes = |number: u64| (number << 10).to_string();
    machine
        .with(&format!("{folder}/memory.limit_in_bytes"), &bytes(limit))
        .with(&format!("{folder}/memory.usage_in_bytes"), &bytes(usage))
        .with(
            &format!("{folder}/memory.stat"),
            &format!("inactive_file 7\ntotal_inactive_file {}\n", cache << 10),
        )
}

/// A group of version 2. `max` may be the word.
fn with_v2(machine: Machine, folder: &str, max: &str, current: u64) -> Machine {
    let current = (current << 10).to_string();
    machine
        .with(&format!("{folder}/memory.max"), max)
        .with(&format!("{folder}/memory.current"), &current)
}

#[test]
fn the_tightest_group_up_to_the_root_of_version_1_counts() {
    let machine = Machine::new("v1")
        .with(
            "proc/self/cgroup",
            "9:name=systemd:/x\n4:cpu,memory:/a/b\n0::/\n",
        )
        .with("proc/self/mountinfo", V1_MOUNTS);
    assert_eq!(machine.memory(), (1000, 800));
    let folder = "sys/fs/cgroup/memory";
    let machine = with_v1(machine, &format!("{folder}/a/b"), 600, 300, 0);
    assert_eq!(machine.memory(), (600, 300));
    let machine = with_v1(machine, &format!("{folder}/a"), 400, 350, 0);
    assert_eq!(machine.memory(), (400, 50));
    let machine = with_v1(machine, &format!("{folder}/a"), 400, 350, 100);
    assert_eq!(machine.memory(), (400, 150));
    let machine = with_v1(machine, folder, 1 << 50, 350, 0);
    assert_eq!(machine.memory(), (400, 150));
    let machine = with_v1(machine, folder, 350, 400, 0);
    assert_eq!(machine.memory(), (350, 0));
}

#[test]
fn version_2_has_limits_that_may_be_absent() {
    let machine = Machine::new("v2")
        .with("proc/self/cgroup", "0::/user/my job\n")
        .with(
            "proc/self/mountinfo",
            "30 1 0:30 / /mnt/c\\040g rw - cgroup2 cgroup2 rw\n",
        );
    let machine = with_v2(machine, "mnt/c g/user/my job", "max\n", 100);
    assert_eq!(machine.memory(), (1000, 800));
    let machine = with_v2(machine, "mnt/c g/user", "614400\n", 100);
    assert_eq!(machine.memory(), (600, 500));
    let machine = machine.with("mnt/c g/user/memory.high", "307200\n");
    assert_eq!(machine.memory(), (300, 200));
    let machine = machine.with("mnt/c g/user/memory.stat", "anon 1\ninactive_file 51200\n");
    assert_eq!(machine.memory(), (300, 250));
}

#[test]
fn a_container_sees_its_own_group_at_the_mount_point() {
    let mounts = "30 1 0:30 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    for group in [
        "0::/docker/abc\n",
        "0::/docker/abc/\n",
        "0::/other\n",
        "0::/../up\n",
    ] {
        let machine = Machine::new("container")
            .with("proc/self/cgroup", group)
            .with("proc/self/mountinfo", mounts);
        let machine = with_v2(machine, "sys/fs/cgroup", "102400", 40);
        assert_eq!(machine.memory(), (100, 60), "{group}");
    }
}

#[test]
fn without_a_list_of_mounts_the_standard_mount_points_are_read() {
    let machine = Machine::new("standard").with("proc/self/cgroup", "4:memory:/a\n0::/b\n");
    let machine = with_v1(machine, "sys/fs/cgroup/memory/a", 600, 300, 0);
    assert_eq!(machine.memory(), (600, 300));
    let machine = with_v2(machine, "sys/fs/cgroup/b", "409600", 300);
    assert_eq!(machine.memory(), (400, 100));
}

#[test]
fn nonsense_in_the_files_of_groups_limits_nothing() {
    let long = "x".repeat(5000);
    let groups = [
        "",
        ":",
        "4:memory",
        "\0",
        &format!("4:memory:/{long}\n0::/{long}\n"),
    ];
    for group in groups {
        let machine = Machine::new("nonsense-groups")
            .with("proc/self/cgroup", group)
            .with(
                "proc/self/mountinfo",
                &format!("{V1_MOUNTS}\n - - -\n{long}"),
            );
        assert_eq!(machine.memory(), (1000, 800), "{group}");
    }
    for (max, current) in [("-5", "3"), ("5x", "3"), ("5", ""), ("", "3"), ("5", "0x3")] {
        let machine = Machine::new("nonsense-number")
            .with("proc/self/cgroup", "0::/\n")
            .with("sys/fs/cgroup/memory.max", max)
            .with("sys/fs/cgroup/memory.current", current);
        assert_eq!(machine.memory(), (1000, 800), "{max} {current}");
    }
}
