//! The providers in the system's libfabric, which loads them from `FI_PROVIDER_PATH`: fi_info,
//! fi_pingpong and Open MPI. Each program is libfabric's own, and the library too.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use selvedge_testkit::skip::{Need, skip};

/// A folder with the library under the file names that select its providers.
fn provider_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("providers");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        for name in ["shm", "tcp"] {
            let file = folder.join(format!("libselvedge_{name}-fi.so"));
            fs::copy(built_library(), file).unwrap();
        }
        folder
    })
}

fn built_library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().unwrap();
    let folders = [folder, folder.parent().unwrap()];
    let mut files = folders
        .map(|folder| folder.join("libselvedge_fi.so"))
        .into_iter();
    files
        .find(|file| file.exists())
        .expect("the library is built with the tests")
}

/// Returns whether the system has a program. Otherwise the test is reported as skipped.
fn has(program: &str, need: Need) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_installed = std::env::split_paths(&path).any(|folder| folder.join(program).exists());
    if !is_installed {
        skip(need, format_args!("there is no {program}"));
    }
    is_installed
}

/// A program of the system, whose libfabric finds the providers. A program that hangs is killed.
fn with_providers(program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "1", "60", program]);
    command
        .env_remove("LD_LIBRARY_PATH")
        .env("FI_PROVIDER_PATH", provider_folder());
    command
}

/// Runs a command, and returns whether it has succeeded, with its output and error output.
fn run(command: &mut Command) -> (bool, String) {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

fn output_of(command: &mut Command) -> String {
    let (has_succeeded, text) = run(command);
    assert!(has_succeeded, "{command:?}\n{text}");
    text
}

#[test]
fn the_library_exports_its_entry_point_and_nothing_else() {
    if !has("objdump", Need::Cc) {
        return;
    }
    let text = output_of(Command::new("objdump").arg("-T").arg(built_library()));
    let defined = text
        .lines()
        .filter(|line| line.contains(" .text\t") || line.contains(" .data"));
    let names: Vec<_> = defined
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    assert_eq!(names, ["fi_prov_ini"]);
}

#[test]
fn fi_info_lists_the_providers_beside_libfabric_s() {
    if !has("fi_info", Need::Libfabric) {
        return;
    }
    let all = output_of(&mut with_providers("fi_info"));
    for name in ["selvedge_shm", "selvedge_tcp", "shm", "tcp"] {
        assert!(
            all.contains(&format!("provider: {name}\n")),
            "{name}\n{all}"
        );
    }
    for (name, protocol) in [
        ("selvedge_shm", "FI_PROTO_SHM"),
        ("selvedge_tcp", "FI_PROTO_XNET"),
    ] {
        let text = output_of(with_providers("fi_info").args(["-p", name, "-v"]));
        assert!(text.contains(protocol), "{text}");
        let others = text
            .lines()
            .filter(|line| line.trim().starts_with("prov_name:"));
        for line in others {
            assert_eq!(line.trim(), format!("prov_name: {name}"), "{text}");
        }
        // The parameter selects a provider in libfabric, by libfabric's rules.
        let text = output_of(with_providers("fi_info").env("FI_PROVIDER", name));
        assert!(text.contains(name), "{text}");
    }
    let without = output_of(with_providers("fi_info").env("FI_PROVIDER", "^selvedge_shm"));
    assert!(
        !without.contains("selvedge_shm") && without.contains("selvedge_tcp"),
        "{without}"
    );
}

#[test]
fn own_parameters_reach_the_providers() {
    if !has("fi_info", Need::Libfabric) {
        return;
    }
    let arguments = ["-p", "selvedge_shm", "-v"];
    let run = |name: &str| {
        let mut command = with_providers("fi_info");
        run(command.args(arguments).env(name, "1000000"))
    };
    let (has_succeeded, text) = run("FI_SELVEDGE_SHM_SPIN_TIME");
    let reason = "FI_SHM_SPIN_TIME=\"1000000\": expected a time with its unit";
    assert!(!has_succeeded && text.contains(reason), "{text}");
}

#[test]
fn a_library_with_another_file_name_says_how_to_name_it() {
    if !has("fi_info", Need::Libfabric) {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("misnamed");
    fs::create_dir_all(&folder).unwrap();
    fs::copy(built_library(), folder.join("libother-fi.so")).unwrap();
    let text = output_of(with_providers("fi_info").env("FI_PROVIDER_PATH", &folder));
    assert!(
        text.contains("its file name selects the provider"),
        "{text}"
    );
    assert!(!text.contains("provider: selvedge"), "{text}");
}

#[test]
fn fi_pingpong_runs_over_both_providers() {
    if !has("fi_pingpong", Need::Libfabric) {
        return;
    }
    for (provider, ep_type) in [
        ("selvedge_shm", "rdm"),
        ("selvedge_tcp", "rdm"),
        ("selvedge_tcp", "msg"),
    ] {
        pingpong(provider, ep_type);
    }
}

fn pingpong(provider: &str, ep_type: &str) {
    let port = free_port();
    let arguments = ["-p", provider, "-e", ep_type, "-I", "20", "-S", "all"];
    let command = |role: [&str; 2]| {
        let mut command = with_providers("fi_pingpong");
        command.args(arguments).args(role);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let server = command(["-B", &port]).spawn().unwrap();
    while !is_listening(&port) {
        std::thread::yield_now();
    }
    let client = run(command(["-P", &port]).arg("127.0.0.1"));
    let server = server.wait_with_output().unwrap();
    let server_text = String::from_utf8_lossy(&server.stderr);
    assert!(
        client.0,
        "{provider} {ep_type}: {}\n{server_text}",
        client.1
    );
    assert!(client.1.contains("1m"), "{}", client.1);
}

fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}

/// Returns whether a socket listens on this port, without connecting to it.
fn is_listening(port: &str) -> bool {
    let port = format!(":{:04X}", port.parse::<u16>().unwrap());
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    tables.into_iter().flatten().any(|table| {
        table.lines().any(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            words.len() > 3 && words[1].ends_with(&port) && words[3] == "0A"
        })
    })
}

#[test]
fn open_mpi_runs_over_both_providers() {
    if !has("mpirun", Need::Mpi) || !has("mpicc", Need::Mpi) {
        return;
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("provider-mpi");
    output_of(
        Command::new("mpicc")
            .arg("-o")
            .arg(&program)
            .arg(sources.join("ring.c")),
    );
    for provider in ["selvedge_shm", "selvedge_tcp"] {
        let mut command = with_providers("mpirun");
        command.args(["-n", "3", "--oversubscribe", "--bind-to", "none"]);
        for (name, value) in [
            ("pml", "cm"),
            ("mtl", "ofi"),
            ("mtl_ofi_provider_include", provider),
            ("btl", "^ofi"),
        ] {
            command.args(["--mca", name, value]);
        }
        command
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        let text = output_of(command.arg(&program).arg(provider));
        assert!(text.contains("3 ranks exchanged"), "{provider}: {text}");
    }
}

/// MPICH, of which `MPICH_HOME` names the prefix, with its device for libfabric.
#[test]
fn ranks_of_mpich_use_the_plugin() {
    let Ok(prefix) = std::env::var("MPICH_HOME") else {
        return skip(Need::OtherMpi, "MPICH_HOME names no MPICH with libfabric");
    };
    let bin = Path::new(&prefix).join("bin");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/ring.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("provider-mpich");
    let mut compiler = Command::new(bin.join("mpicc"));
    output_of(compiler.arg("-o").arg(&program).arg(source));
    for provider in ["selvedge_shm", "selvedge_tcp"] {
        let mut command = with_providers(bin.join("mpiexec").to_str().unwrap());
        command
            .env("MPIR_CVAR_CH4_NETMOD", "ofi")
            .env("MPIR_CVAR_NOLOCAL", "1")
            .env("FI_PROVIDER", provider);
        let text = output_of(command.args(["-n", "3"]).arg(&program).arg(provider));
        assert!(text.contains("3 ranks exchanged"), "{provider}: {text}");
    }
}

/// The program is compiled with Selvedge's headers and linked to the library in the folder that
/// `SELVEDGE_OTHER_LIBFABRIC` names; MPI packages of PyPI have such a library.
#[test]
fn a_newer_libfabric_lists_both_providers() {
    let Ok(folder) = std::env::var("SELVEDGE_OTHER_LIBFABRIC") else {
        let reason = "SELVEDGE_OTHER_LIBFABRIC names no folder with a libfabric.so.1";
        return skip(Need::OtherMpi, reason);
    };
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("provider-list");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-Wall", "-Werror", "-o"])
        .arg(&program)
        .arg(package.join("tests/c/list.c"))
        .arg("-I")
        .arg(package.join("../fabric/include"))
        .args(["-L", &folder, "-l:libfabric.so.1"])
        // Libraries of the named one lie in folders of its own.
        .arg("-Wl,--unresolved-symbols=ignore-in-shared-libs");
    output_of(&mut compiler);
    let mut command = with_providers(program.to_str().unwrap());
    let text = output_of(command.env("LD_LIBRARY_PATH", &folder));
    for name in ["selvedge_shm", "selvedge_tcp"] {
        assert!(text.contains(&format!("provider: {name}\n")), "{text}");
    }
    assert!(
        text.contains("library: ") && !text.contains("library: 1."),
        "{text}"
    );
}
