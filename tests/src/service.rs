//! One running process of the pair.

use std::{
    env,
    ffi::OsString,
    fs,
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::{assets, wait};

/// A service of ours as a child process. Dropping it kills it; a failing test prints the end of its log.
pub struct Service {
    name: String,
    command: Command,
    child: Child,
    /// Its gRPC listener, `127.0.0.1:PORT`.
    pub address: String,
    log: PathBuf,
}

impl Service {
    /// Starts `program` (`engine-svc` or `scheduler-svc`) under the log name `name`. `args` say where it listens,
    /// `address` repeats it; logs go to `folder`.
    ///
    /// # Panics
    /// When the program is not built or cannot be started.
    pub fn start(
        name: &str,
        program: &str,
        address: &str,
        args: &[String],
        folder: &std::path::Path,
    ) -> Self {
        let log = folder.join(format!("{name}.log"));
        let mut command = Command::new(assets::program(program));
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null());
        // Flags say all; each is also a variable of the environment.
        own_variables().for_each(|name| _ = command.env_remove(name));
        let child = spawn(&mut command, &log);
        Self { name: name.to_owned(), command, child, address: address.to_owned(), log }
    }

    /// Waits until it reports SERVING.
    ///
    /// # Panics
    /// When it ends instead.
    pub async fn ready(&mut self) {
        loop {
            if serving(&self.address).await {
                return;
            }
            if let Some(status) = self.child.try_wait().expect("state of a child") {
                panic!("{} ended before it was ready: {status}\n{}", self.name, self.log());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// SIGTERM: drain; a second one: stop at once.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, and its end awaited.
    pub fn kill(&mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("end of a killed child");
    }

    /// Starts the same command again, on the same ports, after it ended.
    pub fn restart(&mut self) {
        assert!(!self.running(), "{} still runs", self.name);
        self.child = spawn(&mut self.command, &self.log);
    }

    /// Whether it has not ended.
    pub fn running(&mut self) -> bool {
        self.child.try_wait().expect("state of a child").is_none()
    }

    /// Its exit status, once it ends by itself or by a signal sent before.
    pub async fn ended(&mut self) -> ExitStatus {
        let child = &mut self.child;
        wait::within_patience(&format!("the end of {}", self.name), async {
            loop {
                if let Some(status) = child.try_wait().expect("state of a child") {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
    }

    /// All it has logged, over restarts.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("pid of a child");
        kill_process(pid, signal).expect("signal to a child");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<_> = log.lines().collect();
            let tail = lines[lines.len().saturating_sub(40)..].join("\n");
            eprintln!("--- end of the log of {}:\n{tail}", self.name);
        }
    }
}

/// Starts `program` with `args` that it must refuse: it ends by itself, with a status of failure; what it said.
///
/// # Panics
/// When it serves, or crashes.
pub async fn refused(program: &str, args: &[&str]) -> String {
    let mut command = tokio::process::Command::new(assets::program(program));
    command.args(args).args(["--log-format", "text"]).stdin(Stdio::null()).kill_on_drop(true);
    own_variables().for_each(|name| _ = command.env_remove(name));
    let ended =
        wait::within_patience(&format!("a refusal of {args:?}"), command.output()).await.expect(program);
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.code().is_some_and(|code| code != 0), "{args:?}: {}\n{said}", ended.status);
    assert!(!said.contains("panicked"), "{args:?}: {said}");
    said
}

/// A loopback address nobody listens on.
///
/// # Panics
/// When none is found.
pub fn free_address() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Below the range the kernel gives to outgoing connections; by pid, since tests run as many processes.
    let start = (std::process::id() % 600) as u16 * 32;
    for _ in 0..1000 {
        let port = 10_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return format!("127.0.0.1:{port}");
        }
    }
    panic!("no free port on loopback");
}

fn own_variables() -> impl Iterator<Item = OsString> {
    env::vars_os().map(|(name, _)| name).filter(|name| name.to_string_lossy().starts_with("FIRSTLIGHT_"))
}

fn spawn(command: &mut Command, log: &std::path::Path) -> Child {
    let file = fs::File::options().create(true).append(true).open(log).expect("log file");
    command.stderr(file).spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

async fn serving(address: &str) -> bool {
    let Ok(channel) = crate::client::channel(address).await else { return false };
    let answer = HealthClient::new(channel).check(HealthCheckRequest::default()).await;
    answer.is_ok_and(|answer| answer.into_inner().status() == ServingStatus::Serving)
}
