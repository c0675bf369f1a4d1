//! Ids against a server on loopback that answers as the hub does.

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use firstlight_hub::{Hub, HubError, ModelId, Wanted};

const FOLDER: &[(&str, &str)] = &[
    ("README.md", "not wanted"),
    ("config.json", "{}"),
    ("generation_config.json", "ends"),
    ("model.safetensors", "weights"),
    ("onnx/model.onnx", "not wanted"),
    ("tokenizer.json", "words"),
];

/// A hub with one repository, `some/model`. Counts the files it hands out.
struct Server {
    endpoint: String,
    handed_out: Arc<AtomicUsize>,
}

impl Server {
    fn with(files: &'static [(&'static str, &'static str)]) -> Self {
        Self::gated(files, None)
    }

    /// One that answers callers with that token only.
    fn gated(files: &'static [(&'static str, &'static str)], token: Option<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let handed_out = Arc::new(AtomicUsize::new(0));
        let count = handed_out.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let count = count.clone();
                std::thread::spawn(move || answer(&stream.unwrap(), files, token, &count));
            }
        });
        Self { endpoint, handed_out }
    }

    fn handed_out(&self) -> usize {
        self.handed_out.load(Ordering::SeqCst)
    }
}

/// One request, one answer, then the connection closes.
fn answer(mut stream: &TcpStream, files: &[(&str, &str)], token: Option<&str>, handed_out: &AtomicUsize) {
    let lines: Vec<String> = BufReader::new(stream)
        .lines()
        .map(|line| line.unwrap_or_default())
        .take_while(|line| !line.is_empty())
        .collect();
    let Some(path) = lines.first().and_then(|line| line.split(' ').nth(1)) else { return };
    let file = path.strip_prefix("/some/model/resolve/main/").map(|name| files.iter().find(|f| f.0 == name));
    let carries = |token: &str| {
        lines.iter().any(|line| line.eq_ignore_ascii_case(&format!("authorization: bearer {token}")))
    };
    let (status, headers, body) = if token.is_some_and(|token| !carries(token)) {
        ("401 Unauthorized", String::new(), String::new())
    } else if path == "/api/models/some/model/revision/main" {
        let names: Vec<_> = files.iter().map(|f| format!("{{\"rfilename\":\"{}\"}}", f.0)).collect();
        ("200 OK", String::new(), format!("{{\"sha\":\"c0ffee\",\"siblings\":[{}]}}", names.join(",")))
    } else if let Some(Some((name, body))) = file {
        if lines.iter().any(|line| line.eq_ignore_ascii_case("range: bytes=0-")) {
            handed_out.fetch_add(1, Ordering::SeqCst);
        }
        let size = body.len();
        let headers = format!(
            "x-repo-commit: c0ffee\r\netag: \"{}\"\r\ncontent-range: bytes 0-{}/{size}\r\n",
            name.replace('/', "-"),
            size - 1
        );
        ("206 Partial Content", headers, (*body).to_owned())
    } else {
        ("404 Not Found", String::new(), String::new())
    };
    let length = body.len();
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
}

/// A cache folder of the test's own, removed afterwards.
struct CacheFolder(PathBuf);

impl CacheFolder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hub-{name}-{}", std::process::id()));
        Self(path)
    }
}

impl Drop for CacheFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn id(text: &str) -> ModelId {
    ModelId::parse(text).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_model_is_fetched_once_and_then_found_without_network() {
    let cache = CacheFolder::new("once");
    let server = Server::with(FOLDER);
    let online = Hub::new(&cache.0, Some(server.endpoint.clone()));

    let folder = online.find(&id("some/model"), Wanted::Model).unwrap();
    let all = ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"];
    assert_eq!(names(&folder), all);
    assert_eq!(std::fs::read_to_string(folder.join("model.safetensors")).unwrap(), "weights");
    assert_eq!(server.handed_out(), all.len());

    assert_eq!(online.find(&id("some/model"), Wanted::Model).unwrap(), folder);
    assert_eq!(server.handed_out(), all.len());
    assert_eq!(Hub::new(&cache.0, None).find(&id("some/model"), Wanted::Model).unwrap(), folder);
}

#[test]
fn a_repository_without_the_small_files_is_a_model_all_the_same() {
    let cache = CacheFolder::new("bare");
    let server = Server::with(&[("config.json", "{}"), ("model.safetensors", "weights")]);
    let hub = Hub::new(&cache.0, Some(server.endpoint.clone()));
    let folder = hub.find(&id("some/model"), Wanted::Model).unwrap();
    assert_eq!(names(&folder), ["config.json", "model.safetensors"]);
}

#[test]
fn a_tokenizer_comes_without_the_weights_and_is_no_model_yet() {
    let cache = CacheFolder::new("tokenizer");
    let server = Server::with(FOLDER);
    let online = Hub::new(&cache.0, Some(server.endpoint.clone()));
    let folder = online.find(&id("some/model"), Wanted::Tokenizer).unwrap();
    assert_eq!(names(&folder), ["config.json", "tokenizer.json"]);

    let offline = Hub::new(&cache.0, None);
    assert_eq!(offline.find(&id("some/model"), Wanted::Tokenizer).unwrap(), folder);
    assert!(matches!(offline.find(&id("some/model"), Wanted::Model), Err(HubError::NotToBeHad { .. })));
}

#[test]
fn offline_and_not_in_the_cache_says_what_to_do() {
    let cache = CacheFolder::new("offline");
    let error = Hub::new(&cache.0, None).find(&id("some/model"), Wanted::Model).unwrap_err().to_string();
    for part in ["some/model@main", "HF_HUB_OFFLINE", "hf download some/model", "--model", "HF_HOME"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn of_several_gguf_files_one_has_to_be_named() {
    let cache = CacheFolder::new("gguf");
    let server = Server::with(&[("a.Q4_0.gguf", "four"), ("a.Q8_0.gguf", "eight")]);
    let hub = Hub::new(&cache.0, Some(server.endpoint.clone()));
    let error = hub.find(&id("some/model"), Wanted::Model).unwrap_err().to_string();
    assert!(error.contains("a.Q4_0.gguf, a.Q8_0.gguf"), "{error}");
    let file = hub.find(&id("some/model:a.Q8_0.gguf"), Wanted::Model).unwrap();
    assert_eq!(std::fs::read_to_string(file).unwrap(), "eight");
}

#[test]
fn what_the_hub_does_not_have_is_refused_with_its_answer() {
    let cache = CacheFolder::new("missing");
    let server = Server::with(FOLDER);
    let hub = Hub::new(&cache.0, Some(server.endpoint.clone()));
    let error = hub.find(&id("no/such"), Wanted::Model).unwrap_err();
    assert!(matches!(error, HubError::Refused { status: 404, .. }), "{error}");
}

#[test]
fn a_gated_model_is_fetched_with_a_token_and_the_refusal_says_how_to_give_one() {
    let cache = CacheFolder::new("gated");
    let server = Server::gated(FOLDER, Some("secret"));
    let hub = || Hub::new(&cache.0, Some(server.endpoint.clone()));
    for stranger in [hub(), hub().with_token("another")] {
        let error = stranger.find(&id("some/model"), Wanted::Model).unwrap_err();
        assert!(matches!(error, HubError::Refused { status: 401, .. }), "{error}");
        assert!(error.to_string().contains("HF_TOKEN"), "{error}");
    }
    let folder = hub().with_token("secret").find(&id("some/model"), Wanted::Model).unwrap();
    assert!(folder.join("model.safetensors").exists());
}
