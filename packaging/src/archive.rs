//! Everything in one tar file: an OCI image layout that is a `docker save` too.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use tempfile::NamedTempFile;

use crate::Error;
use crate::layer::{Layer, header};
use crate::oci::{Documents, blob};

/// Writes the archive and returns its length in bytes. Whoever reads an earlier one goes on reading that.
///
/// # Errors
/// The file that could not be written.
pub fn write(output: &Path, documents: &Documents, layers: &[Layer]) -> Result<u64, Error> {
    let directory =
        output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let mut file =
        NamedTempFile::with_prefix_in(".image-", directory).map_err(Error::at("write in", directory))?;
    let path = file.path().to_owned();
    fill(file.as_file_mut(), documents, layers).map_err(Error::at("write", &path))?;
    let bytes = file.as_file().metadata().map_err(Error::at("read", &path))?.len();
    readable(file.as_file()).map_err(Error::at("set the mode of", &path))?;
    file.persist(output).map_err(|error| Error::at("write", output)(error.error))?;
    Ok(bytes)
}

fn fill(file: &mut File, documents: &Documents, layers: &[Layer]) -> std::io::Result<()> {
    let mut builder = tar::Builder::new(BufWriter::new(file));
    let mut bytes = |path: &str, bytes: &[u8]| {
        let mut header = header(tar::EntryType::Regular, 0o644, bytes.len() as u64);
        builder.append_data(&mut header, path, bytes)
    };
    // First, so that a reader of a stream knows what follows.
    bytes("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    bytes("index.json", &documents.index.bytes)?;
    bytes("manifest.json", &documents.docker.bytes)?;
    for document in [&documents.manifest, &documents.config] {
        bytes(&blob(&document.digest()), &document.bytes)?;
    }
    for layer in layers {
        let mut header = header(tar::EntryType::Regular, 0o644, layer.summary.compressed);
        builder.append_data(&mut header, blob(&layer.summary.digest), layer.file.reopen()?)?;
    }
    let out = builder.into_inner()?;
    out.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    Ok(())
}

/// Temporary files are their owner's alone; an image is for whoever builds or loads it.
fn readable(file: &File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}
