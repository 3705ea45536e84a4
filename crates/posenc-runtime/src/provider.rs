//! Execution providers: what a model runs on, and the words that name them.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// What a model runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Provider {
    /// The processor.
    #[default]
    Cpu,
    /// Another execution provider of ONNX Runtime.
    Other(ExecutionProvider),
}

/// An execution provider of ONNX Runtime besides that of the processor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExecutionProvider {
    /// The name that ONNX Runtime gives it, as `CUDAExecutionProvider`.
    pub name: String,
    /// The number of the device, from 0; `None` for that of the provider.
    pub device: Option<u32>,
    /// Its options by the names that ONNX Runtime gives them; [`LIBRARY`] names the file of a plugin.
    pub options: BTreeMap<String, String>,
}

/// The option of the file that a provider is loaded from, where ONNX Runtime was not built with it.
pub const LIBRARY: &str = "library";

/// How names of execution providers end.
const SUFFIX: &str = "ExecutionProvider";

/// Execution providers by the words that name them, besides `cpu`.
pub const WORDS: [(&str, &str); 14] = [
    ("cuda", "CUDAExecutionProvider"),
    ("tensorrt", "TensorrtExecutionProvider"),
    ("tensorrt-rtx", "NvTensorRTRTXExecutionProvider"),
    ("directml", "DmlExecutionProvider"),
    ("coreml", "CoreMLExecutionProvider"),
    ("openvino", "OpenVINOExecutionProvider"),
    ("migraphx", "MIGraphXExecutionProvider"),
    ("rocm", "ROCMExecutionProvider"),
    ("webgpu", "WebGpuExecutionProvider"),
    ("qnn", "QNNExecutionProvider"),
    ("vitisai", "VitisAIExecutionProvider"),
    ("cann", "CANNExecutionProvider"),
    ("dnnl", "DnnlExecutionProvider"),
    ("xnnpack", "XnnpackExecutionProvider"),
];

impl Provider {
    /// The NVIDIA GPU of this number, from 0.
    pub fn cuda(device: u32) -> Self {
        Self::Other(ExecutionProvider {
            device: (device > 0).then_some(device),
            ..ExecutionProvider::named("CUDAExecutionProvider")
        })
    }
}

impl ExecutionProvider {
    /// A provider by the name that ONNX Runtime gives it, with its own device and no options.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            device: None,
            options: BTreeMap::new(),
        }
    }

    /// The word that names it.
    pub fn word(&self) -> &str {
        let known = WORDS.iter().find(|(_, name)| *name == self.name);
        known.map_or(&*self.name, |(word, _)| *word)
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Other(provider) => provider.fmt(f),
        }
    }
}

impl fmt::Display for ExecutionProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        if let Some(device) = self.device {
            write!(f, ":{device}")?;
        }
        self.options
            .iter()
            .try_for_each(|(key, value)| write!(f, ",{key}={value}"))
    }
}

/// Why a text names no execution provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidProvider(String);

impl FromStr for Provider {
    type Err = InvalidProvider;

    /// `NAME[:DEVICE][,KEY=VALUE]…`, where the name is `cpu`, one of [`WORDS`], or that of ONNX Runtime, which ends in
    /// `ExecutionProvider`. `cpu` has one device and takes no options.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |why: String| Err(InvalidProvider(why));
        if text.contains('\0') {
            return invalid("it contains a zero byte".to_owned());
        }
        let mut parts = text.split(',');
        let head = parts.next().unwrap_or_default();
        let (word, device) = match head.split_once(':') {
            Some((word, device)) => (word, Some(device)),
            None => (head, None),
        };
        let device = match device {
            None => None,
            Some(text) => match text.parse::<u32>() {
                Ok(device) => Some(device),
                Err(_) => return invalid(format!("{text:?} is no number of a device, from 0")),
            },
        };
        let mut options = BTreeMap::new();
        for part in parts {
            let Some((key, value)) = part.split_once('=').filter(|(key, _)| !key.is_empty()) else {
                return invalid(format!(
                    "{part:?} is no option as KEY=VALUE; several providers are given one by one"
                ));
            };
            if options.insert(key.to_owned(), value.to_owned()).is_some() {
                return invalid(format!("the option {key} is given twice"));
            }
        }
        let is_device = |key: &String| ["device_id", "deviceId"].contains(&&**key);
        if device.is_some() && options.keys().any(is_device) {
            return invalid("the device is given twice".to_owned());
        }
        if ["cpu", "CPUExecutionProvider"].contains(&word) {
            return match (device, options.is_empty()) {
                (None, true) => Ok(Self::Cpu),
                _ => invalid("cpu takes no device and no options".to_owned()),
            };
        }
        let known = WORDS.iter().find(|(own, _)| *own == word);
        let name = match known {
            Some((_, name)) => *name,
            None if word.ends_with(SUFFIX) => word,
            None => {
                let words: Vec<&str> = WORDS.iter().map(|(word, _)| *word).collect();
                return invalid(format!(
                    "ONNX Runtime has no provider {word:?}; known are cpu, {}, and its own names, as \
                     CUDAExecutionProvider",
                    words.join(", ")
                ));
            }
        };
        Ok(Self::Other(ExecutionProvider {
            name: name.to_owned(),
            // The first device is that of the provider.
            device: device.filter(|device| *device > 0),
            options,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Provider, String> {
        text.parse().map_err(|e: InvalidProvider| e.to_string())
    }

    #[test]
    fn every_word_is_read_and_written() {
        let words = WORDS.iter().map(|(word, _)| *word);
        for text in words.chain(["cpu", "cuda:1", "NewExecutionProvider:2,key=value"]) {
            assert_eq!(read(text).unwrap().to_string(), text);
        }
        for (word, name) in WORDS {
            assert_eq!(read(word), read(name));
        }
        assert_eq!(read("cuda:0"), Ok(Provider::cuda(0)));
        assert_eq!(read("cuda:3"), Ok(Provider::cuda(3)));
        let text = "openvino,device_type=GPU.1,cache_dir=a=b";
        let Ok(Provider::Other(provider)) = read(text) else {
            panic!("{text}");
        };
        assert_eq!(provider.name, "OpenVINOExecutionProvider");
        let options: Vec<_> = provider.options.iter().collect();
        let (cache, device) = (("cache_dir", "a=b"), ("device_type", "GPU.1"));
        let want = [cache, device].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert!(
            options
                .iter()
                .map(|(k, v)| ((*k).clone(), (*v).clone()))
                .eq(want)
        );
    }

    #[test]
    fn other_texts_are_refused_with_the_reason() {
        for (text, why) in [
            ("", "has no provider \"\"; known are cpu, cuda, "),
            ("gpu", "has no provider \"gpu\"; known are cpu, cuda, "),
            ("CUDA", "has no provider \"CUDA\""),
            ("cuda:", "\"\" is no number of a device"),
            ("cuda:x", "\"x\" is no number of a device"),
            ("cuda:-1", "\"-1\" is no number of a device"),
            ("cuda:0:1", "\"0:1\" is no number of a device"),
            ("cuda:0,device_id=1", "the device is given twice"),
            ("cuda,cpu", "several providers are given one by one"),
            ("cuda,a", "\"a\" is no option as KEY=VALUE"),
            ("cuda,", "\"\" is no option as KEY=VALUE"),
            ("cuda,=1", "\"=1\" is no option as KEY=VALUE"),
            ("cuda,a=1,a=2", "the option a is given twice"),
            ("cpu:1", "cpu takes no device"),
            ("cpu,a=1", "cpu takes no device and no options"),
            ("cuda,a=\0", "it contains a zero byte"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
