//! The table of the Debian packages: which files of the installation each of them has.

use std::path::Path;

/// A Debian package.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) name: &'static str,
    pub(super) section: &'static str,
    /// Fields that only this package has, as lines.
    pub(super) fields: &'static str,
    /// The first line of the description, and the text below it.
    pub(super) summary: &'static str,
    pub(super) text: &'static str,
    /// Its files, relative to `/usr`. `LIB` stands for `lib/` and the architecture's folder. A name
    /// with a star at its end stands for all that begin with it.
    files: &'static [&'static str],
}

/// The package of the files with debug information.
pub(super) const DEBUG: &str = "selvedge-dbg";

/// The packages. A file belongs to the first one that has it.
pub(super) const PACKAGES: [Package; 7] = [
    Package {
        name: "libselvedge-fi-provider",
        section: "libs",
        fields: "Enhances: libfabric1\n",
        summary: "shared memory and TCP of Selvedge as providers of libfabric",
        text: "Programs of the system's libfabric, and MPI libraries on it, find the providers\n\
               selvedge_shm and selvedge_tcp without any variable.",
        files: &["LIB/libfabric/*"],
    },
    Package {
        name: "libselvedge-fabric-dev",
        section: "libdevel",
        fields: "Depends: libselvedge-fabric1 (= ${version})\n",
        summary: "headers of libfabric's interface, of Selvedge",
        text: "Programs are built with PKG_CONFIG_PATH set to the folder selvedge/pkgconfig in the\n\
               architecture's library folder.",
        files: &[
            "LIB/selvedge/libfabric.so",
            "LIB/selvedge/pkgconfig/libfabric.pc",
            "include/selvedge/rdma/*",
        ],
    },
    Package {
        name: "libselvedge-fabric1",
        section: "libs",
        fields: "",
        summary: "libfabric's interface on Selvedge",
        text: "The library lies in a folder of its own, beside that of libfabric1. Programs load it\n\
               if LD_LIBRARY_PATH names the folder.",
        files: &[
            "LIB/selvedge/libfabric.so.1*",
            "LIB/selvedge/libselvedge_heap.so",
            "share/doc/selvedge/CFACE.md",
        ],
    },
    Package {
        name: "libselvedge-bmi",
        section: "libdevel",
        fields: "",
        summary: "BMI, the Buffered Message Interface, on Selvedge",
        text: "The library with its headers.",
        files: &[
            "LIB/selvedge/libbmi.so",
            "LIB/selvedge/pkgconfig/bmi.pc",
            "include/selvedge/bmi*",
            "include/selvedge/gossip.h",
            "include/selvedge/pvfs2*",
            "share/doc/selvedge/BMI.md",
        ],
    },
    Package {
        name: "libselvedge-cheetah",
        section: "libdevel",
        fields: "",
        summary: "Cheetah, one-sided messaging, on Selvedge",
        text: "The library with its headers, and cheetahrun, which starts programs.",
        files: &[
            "LIB/selvedge/libcheetah.so",
            "LIB/selvedge/pkgconfig/cheetah.pc",
            "include/selvedge/cheetah*",
            "include/selvedge/Cheetah/*",
            "share/doc/selvedge/CHEETAH.md",
            "bin/cheetahrun",
            "share/man/man1/cheetahrun.1",
            "share/bash-completion/completions/cheetahrun",
            "share/zsh/site-functions/_cheetahrun",
            "share/fish/vendor_completions.d/cheetahrun.fish",
        ],
    },
    Package {
        name: DEBUG,
        section: "debug",
        fields: "",
        summary: "debug information of Selvedge's libraries and tools",
        text: "gdb, perf and valgrind find the files.",
        files: &["lib/debug/*"],
    },
    Package {
        name: "selvedge-tools",
        section: "utils",
        fields: "",
        summary: "tools of Selvedge: fi_top, fabtests, selvedge-run, selvedge-fi_info",
        text: "fi_top shows the endpoints of processes, fabtests tests and measures providers,\n\
               selvedge-run runs MPI jobs over Selvedge, selvedge-fi_info and\n\
               selvedge-fi_strerror are like libfabric's tools.",
        files: &[
            "bin/*",
            "share/man/*",
            "share/bash-completion/*",
            "share/zsh/*",
            "share/fish/*",
        ],
    },
];

impl Package {
    /// Returns whether the package has this file, whose path is relative to `/usr`. `lib` is the
    /// folder for which `LIB` stands.
    pub(super) fn has(&self, file: &Path, lib: &str) -> bool {
        let file = file.to_string_lossy();
        self.files.iter().any(|pattern| {
            let pattern = pattern.replacen("LIB", lib, 1);
            match pattern.strip_suffix('*') {
                Some(beginning) => file.starts_with(beginning),
                None => file == pattern,
            }
        })
    }
}
