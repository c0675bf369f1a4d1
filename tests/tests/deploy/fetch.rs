//! The init container's script, against a hub of the test's own.

use std::{fs, path::Path};

use firstlight_tests::assets;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    process::Command,
};

use crate::support::deploy;

#[tokio::test]
async fn a_model_is_fetched_once_whole_or_not_at_all() {
    let folder = assets::scratch_folder();
    let hub = Hub::start().await;

    // Two pods start at once on one volume.
    let (one, two) = tokio::join!(
        hub.fetch(&folder, "v1", "config.json weights/a.bin"),
        hub.fetch(&folder, "v1", "config.json weights/a.bin")
    );
    assert!(one.status.success() && two.status.success(), "{one:?} {two:?}");
    let current = folder.join("current");
    assert_eq!(fs::read_to_string(current.join("config.json")).unwrap(), "owner/model v1 config.json");
    assert_eq!(fs::read_to_string(current.join("weights/a.bin")).unwrap(), "owner/model v1 weights/a.bin");

    // A later pod finds it there, without the hub.
    let offline = Hub { endpoint: "http://127.0.0.1:1".to_owned() };
    assert!(offline.fetch(&folder, "v1", "config.json weights/a.bin").await.status.success());

    // A file that is not there fails the container and leaves what runs alone.
    let failed = hub.fetch(&folder, "v2", "config.json missing.bin").await;
    assert!(!failed.status.success());
    assert_eq!(fs::read_to_string(current.join("config.json")).unwrap(), "owner/model v1 config.json");

    // Another commit is another folder.
    assert!(hub.fetch(&folder, "v2", "config.json").await.status.success());
    assert_eq!(fs::read_to_string(current.join("config.json")).unwrap(), "owner/model v2 config.json");
    let names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().starts_with('.')), "left behind: {names:?}");
    fs::remove_dir_all(folder).unwrap();
}

/// Answers `/OWNER/NAME/resolve/COMMIT/FILE` with those words, and 404 for a file called `missing.bin`.
struct Hub {
    endpoint: String,
}

impl Hub {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = vec![0; 4096];
                let Ok(length) = stream.read(&mut request).await else { continue };
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                let path = request.split(' ').nth(1).unwrap_or_default().trim_start_matches('/');
                let body = path.replacen("/resolve/", " ", 1).replacen('/', "\u{0}", 1).replacen('/', " ", 1);
                let body = body.replace('\u{0}', "/");
                let status = if path.ends_with("missing.bin") { "404 Not Found" } else { "200 OK" };
                let answer = format!(
                    "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Self { endpoint }
    }

    async fn fetch(&self, folder: &Path, revision: &str, files: &str) -> std::process::Output {
        let script = deploy("kubernetes/components/model-from-hub/fetch-model.sh");
        let mut command = Command::new("sh");
        command.arg(script).arg(folder).env("HUB_ENDPOINT", &self.endpoint).env("HUB_ID", "owner/model");
        command.env("HUB_REVISION", revision).env("HUB_FILES", files).env("HUB_TOKEN", "secret");
        command.output().await.expect("sh")
    }
}
