//! Files that are often mistaken for models, by how they begin.

use crate::external::location::{IS_LFS, LFS};

/// What is wrong with files none of which could be a model.
pub(crate) fn mistaken(source: &[u8]) -> Option<&'static str> {
    let known: [(&[u8], &str); 6] = [
        (LFS, IS_LFS),
        (
            b"<?xml",
            "it is XML, as OpenVINO writes; give the model in ONNX",
        ),
        (
            b"\x89HDF\r\n\x1a\n",
            "it is an HDF5 file, as Keras writes; export the model to ONNX",
        ),
        (b"<", "it is a web page; download the file itself"),
        (
            b"PK\x03\x04",
            "it is a ZIP archive; extract the model from it",
        ),
        (b"\x1f\x8b\x08", "it is compressed; decompress it with gzip"),
    ];
    if source.is_empty() {
        return Some("it is empty");
    }
    // The identifier of a FlatBuffer stands after the offset of its root.
    if source.get(3..8) == Some(b"\0ORTM") {
        return Some(
            "it is a model in the ORT format, which is not supported; give the ONNX model that it \
             was made from",
        );
    }
    if source.starts_with(b"PK\x03\x04") && is_of_torch(source) {
        return Some("it is a file of PyTorch; export the model to ONNX");
    }
    let found = known.iter().find(|(start, _)| source.starts_with(start));
    found.map(|(_, what)| *what)
}

/// Whether the first file in a ZIP archive is one that PyTorch begins with.
fn is_of_torch(source: &[u8]) -> bool {
    let length = source
        .get(26..28)
        .map(|n| usize::from(u16::from_le_bytes([n[0], n[1]])));
    let name = length.and_then(|length| source.get(30..30 + length));
    let own: [&[u8]; 3] = [b"/data.pkl", b"/version", b"/.format_version"];
    name.is_some_and(|name| own.iter().any(|own| name.ends_with(own)))
}

/// The bytes of a file that tell whether it is text.
const SEEN: usize = 1024;

/// What a file is that could not be read as a model.
pub(crate) fn another(source: &[u8]) -> Option<&'static str> {
    let head = &source[..source.len().min(SEEN)];
    let is_safetensors = matches!(head, [_, _, _, _, 0, 0, 0, 0, b'{', ..]);
    let is_pickle = matches!(head, [0x80, 2..=5, ..]);
    let is_wide = head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff");
    Some(match head {
        [b'G', b'G', b'U', b'F', ..] => "it is a GGUF file; give the model in ONNX",
        [_, 0, 0, 0, b'T', b'F', b'L', b'3', ..] => {
            "it is a model of TensorFlow Lite; export the model to ONNX"
        }
        _ if is_safetensors => {
            "it is a safetensors file, which has weights alone; export the model to ONNX"
        }
        _ if is_pickle => "it is a pickle, as PyTorch writes; export the model to ONNX",
        _ if is_text(head) && matches!(head.trim_ascii_start(), [b'{' | b'[', ..]) => {
            "it is JSON; give the model itself"
        }
        _ if is_wide || is_text(head) => "it is a text file; give the model itself",
        _ => return None,
    })
}

/// Fewer characters may be bytes of a model.
const LEAST: usize = 8;

/// Whether these are characters alone, and enough of them; the last one may be cut.
fn is_text(head: &[u8]) -> bool {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(why) if why.error_len().is_none() => {
            std::str::from_utf8(&head[..why.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    let is_written = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
    text.len() >= LEAST && text.chars().all(is_written)
}

#[cfg(test)]
mod tests {
    use crate::Model;

    /// What is said of a file.
    fn said(source: &[u8]) -> String {
        Model::from_bytes(source.to_vec()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_model_is_named() {
        let zip = |name: &[u8]| {
            let mut file = b"PK\x03\x04".to_vec();
            file.resize(26, 0);
            file.extend([u8::try_from(name.len()).unwrap(), 0, 0, 0]);
            file.extend(name);
            file
        };
        let cases: [(&[u8], &str); 15] = [
            (b"<?xml version=\"1.0\"?><net/>", "it is XML"),
            (b"\x89HDF\r\n\x1a\n\0\0", "an HDF5 file"),
            (&zip(b"model/data.pkl"), "a file of PyTorch"),
            (&zip(b"model/data.txt"), "a ZIP archive"),
            (b"GGUF\x03\0\0\0", "a GGUF file"),
            (b"\x1c\0\0\0TFL3\0\0", "TensorFlow Lite"),
            (b"\x38\0\0\0\0\0\0\0{\"a\":{}}", "a safetensors file"),
            (b"\x80\x04\x95\0\0\0\0\0\0\0\0", "a pickle"),
            (b"{\n  \"a\": 1}", "it is JSON"),
            (b"hello world", "a text file"),
            (b"\xff\xfeh\0e\0", "a text file"),
            (b"version https://git-lfs.github.com", "a Git LFS pointer"),
            // Controls: bytes that say nothing.
            (b"\x01\x02\x03\x04", "invalid field number"),
            (b";<", "invalid wire type"),
            (b"\x0a\x7f\x01\x02", "ends inside"),
        ];
        for (source, want) in cases {
            let said = said(source);
            assert!(said.contains(want), "{source:?}: {said}");
        }
    }

    #[test]
    fn what_is_read_as_a_model_is_one_however_it_begins() {
        // A name of a producer, in the first field.
        let said = said(b"\x12\x04TFL3");
        assert!(said.contains("no graph"), "{said}");
    }
}
