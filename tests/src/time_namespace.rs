//! Services in a time namespace of their own, whose monotonic clock is ahead of ours.

use std::{path::Path, process::Command, time::Duration};

use crate::service::Service;

/// Starts `program` as [`Service::start`] does, with a monotonic clock that is `ahead` of this machine's.
///
/// # Panics
/// When the kernel or the rights of this user do not allow it; says what is missing.
pub fn start(
    name: &str,
    program: &str,
    address: &str,
    args: &[String],
    folder: &Path,
    ahead: Duration,
) -> Service {
    let under = unshare(ahead);
    require(&under);
    let program = crate::assets::program(program).to_str().expect("a path in UTF-8").to_owned();
    let args: Vec<String> = under[1..].iter().cloned().chain([program]).chain(args.iter().cloned()).collect();
    Service::start(name, &under[0], address, &args, folder)
}

fn unshare(ahead: Duration) -> Vec<String> {
    let seconds = ahead.as_secs().to_string();
    // The service dies with what started it.
    let mut words = vec!["/usr/bin/unshare", "--time", "--monotonic", &seconds, "--fork", "--kill-child"];
    if !rustix::process::geteuid().is_root() {
        words.extend(["--user", "--map-root-user"]);
    }
    words.into_iter().map(str::to_owned).collect()
}

fn require(under: &[String]) {
    let tried = Command::new(&under[0]).args(&under[1..]).arg("true").output();
    let said = match tried {
        Ok(output) if output.status.success() => return,
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    panic!(
        "{under:?}: {said}: this test needs time namespaces: Linux 5.6 with CONFIG_TIME_NS, util-linux's unshare, \
         and CAP_SYS_ADMIN or unprivileged user namespaces"
    );
}
