//! The documents of an image: configuration, manifest, index; and the manifest of `docker save`.
//!
//! Only what readers look at is written, with sorted keys and without blanks, so that the bytes follow from what they
//! say.

use serde_json::{Value, json};

use crate::Reference;
use crate::layer::{Layer, digest};

/// The time that the image says it was made at: a real one would make every build another image.
const CREATED: &str = "1970-01-01T00:00:00Z";
/// Where programs are looked for: ours before the system's.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";

/// The machine that programs are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// x86-64.
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Architecture {
    /// Its name in images.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

/// A document as it is stored.
#[derive(Debug, Clone)]
pub struct Document {
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Document {
    fn new(value: &Value) -> Self {
        Self { bytes: value.to_string().into_bytes() }
    }

    /// Its digest, `sha256:…`.
    #[must_use]
    pub fn digest(&self) -> String {
        digest(&self.bytes)
    }
}

/// All documents of one image.
#[derive(Debug, Clone)]
pub struct Documents {
    /// The configuration: how a container is started, and what its layers are once unpacked.
    pub config: Document,
    /// The manifest: configuration and layers.
    pub manifest: Document,
    /// `index.json`: the manifest, and its name.
    pub index: Document,
    /// `manifest.json`: the same for `docker load`.
    pub docker: Document,
}

impl Documents {
    /// The documents of an image of these layers.
    #[must_use]
    pub fn new(architecture: Architecture, reference: &Reference, layers: &[Layer]) -> Self {
        let config = Document::new(&config(architecture, layers));
        let descriptors: Vec<Value> = layers
            .iter()
            .map(|layer| {
                let Layer { summary, .. } = layer;
                json!({"mediaType": summary.media_type, "digest": summary.digest, "size": summary.compressed})
            })
            .collect();
        let manifest = Document::new(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": {"mediaType": CONFIG_TYPE, "digest": config.digest(), "size": config.bytes.len()},
            "layers": descriptors,
            "annotations": {"org.opencontainers.image.version": env!("CARGO_PKG_VERSION")},
        }));
        let index = Document::new(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [{
                "mediaType": MANIFEST_TYPE,
                "digest": manifest.digest(),
                "size": manifest.bytes.len(),
                "platform": {"architecture": architecture.as_str(), "os": "linux"},
                // The first is containerd's and podman's, the second skopeo's.
                "annotations": {
                    "io.containerd.image.name": reference.to_string(),
                    "org.opencontainers.image.ref.name": reference.tag(),
                },
            }],
        }));
        let paths: Vec<String> = layers.iter().map(|layer| blob(&layer.summary.digest)).collect();
        let docker = Document::new(&json!([{
            "Config": blob(&config.digest()),
            "RepoTags": [reference.to_string()],
            "Layers": paths,
        }]));
        Self { config, manifest, index, docker }
    }
}

/// Where a blob lies inside the archive.
#[must_use]
pub fn blob(digest: &str) -> String {
    format!("blobs/{}", digest.replacen(':', "/", 1))
}

fn config(architecture: Architecture, layers: &[Layer]) -> Value {
    let history: Vec<Value> = layers
        .iter()
        .map(|layer| json!({"created": CREATED, "created_by": format!("trieste-image: {}", layer.summary.name)}))
        .collect();
    let diff_ids: Vec<&str> = layers.iter().map(|layer| layer.summary.diff_id.as_str()).collect();
    json!({
        "architecture": architecture.as_str(),
        "os": "linux",
        "created": CREATED,
        "config": {
            "User": "0",
            "Env": [PATH],
            "Cmd": ["trieste"],
            "WorkingDir": "/",
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": "trieste",
                "org.opencontainers.image.description":
                    "Trieste: gateway, route agent and command of a multi-cluster network",
                "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
                "org.opencontainers.image.vendor": "The Trieste authors",
                "org.opencontainers.image.licenses": env!("CARGO_PKG_LICENSE"),
            },
        },
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        "history": history,
    })
}
