//! Execution providers in sessions of ONNX Runtime.

use std::path::Path;
use std::sync::PoisonError;

use ::ort::device::Device;
use ::ort::ep::directml::{DeviceFilter, PerformancePreference};
use ::ort::ep::{self, ArbitrarilyConfigurableExecutionProvider, ExecutionProviderDispatch};
use ::ort::session::builder::SessionBuilder;

use super::error::refused;
use super::library::Library;
use crate::error::{Result, RuntimeError, one_line};
use crate::provider::{ExecutionProvider, LIBRARY};
use crate::runtimes::NOT_BUILT;

/// The provider of the processor.
const PROCESSOR: &str = "CPUExecutionProvider";

impl Library {
    /// The builder with a provider.
    ///
    /// # Errors
    /// `Unavailable` where the library has no such provider or device, or refuses its options.
    pub(super) fn with_provider(
        &self,
        builder: SessionBuilder,
        provider: &ExecutionProvider,
    ) -> Result<SessionBuilder> {
        let unavailable = |why: String| RuntimeError::unavailable(provider.to_string(), why);
        let says = |message: &str| {
            let library = self.path.display();
            unavailable(format!("{library} says: {}", one_line(message)))
        };
        let name = &provider.name;
        match provider.options.get(LIBRARY) {
            Some(file) => self.load_plugin(name, file).map_err(unavailable)?,
            None => {
                if let Some(own) = built_in(name) {
                    let built = (own.with_settings)(own, provider).map_err(unavailable)?;
                    // Without the error, sessions would silently run on the processor.
                    let built = built.error_on_failure();
                    let built = builder.with_execution_providers([built]);
                    return built.map_err(|e| says(e.message()));
                }
            }
        }
        let mut devices = self.devices(name);
        if devices.is_empty() {
            return Err(unavailable(match provider.options.get(LIBRARY) {
                Some(_) => format!(
                    "no device of this machine has it; there is {}",
                    self.device_providers().join(", ")
                ),
                None => format!("{NOT_BUILT}: {}", self.path.display()),
            }));
        }
        if let Some(at) = provider.device {
            devices = devices.into_iter().skip(at as usize).take(1).collect();
            if devices.is_empty() {
                return Err(unavailable("there is no such device".to_owned()));
            }
        }
        let options = provider.options.iter().filter(|(key, _)| *key != LIBRARY);
        let options: Vec<(String, String)> = options
            .map(|(key, value)| (format!("{name}.{key}"), value.clone()))
            .collect();
        (builder.with_devices(devices, Some(&options))).map_err(|e| says(e.message()))
    }

    /// The builder for the processor alone: of itself, the runtime may take a plugin that was loaded.
    pub(super) fn with_processor(&self, builder: SessionBuilder) -> Result<SessionBuilder> {
        if self.device_providers().len() < 2 {
            return Ok(builder);
        }
        builder
            .with_devices(self.devices(PROCESSOR), None)
            .map_err(refused)
    }

    /// The devices of this machine that a provider computes on.
    fn devices(&self, name: &str) -> Vec<Device<'_>> {
        let all = self.environment.devices();
        all.filter(|device| device.ep().is_ok_and(|ep| ep == name))
            .collect()
    }

    /// The names of the providers of the devices of this machine, sorted.
    pub(super) fn device_providers(&self) -> Vec<String> {
        let devices = self.environment.devices();
        let mut names: Vec<String> = devices
            .filter_map(|device| device.ep().ok().map(str::to_owned))
            .collect();
        names.sort();
        names.dedup();
        names
    }

    /// Loads the plugin of a provider, once.
    fn load_plugin(&self, name: &str, file: &str) -> Result<(), String> {
        let failed = |why: String| format!("{file} cannot be loaded: {why}");
        // A bare name would be looked for in the folders of the system.
        let path = Path::new(file).canonicalize();
        let path = path.map_err(|e| failed(e.to_string()))?;
        let mut loaded = self.plugins.lock().unwrap_or_else(PoisonError::into_inner);
        let plugin = (name.to_owned(), path);
        if !loaded.contains(&plugin) {
            let registered = self.environment.register_ep_library(name, &plugin.1);
            registered.map_err(|e| failed(one_line(e.message())))?;
            loaded.insert(plugin);
        }
        Ok(())
    }
}

/// A provider that is a part of the library, or would be in another build of it.
struct BuiltIn {
    name: &'static str,
    is_there: fn() -> ::ort::Result<bool>,
    /// The option that takes the number of the device, where one does.
    device: Option<&'static str>,
    /// Why a device or an option is not taken is said in words.
    with_settings: fn(&Self, &ExecutionProvider) -> Result<ExecutionProviderDispatch, String>,
}

/// A provider that takes options by name, and the device as one of them.
const fn by_options<E>(device: Option<&'static str>) -> BuiltIn
where
    E: ep::ExecutionProvider
        + ArbitrarilyConfigurableExecutionProvider
        + Default
        + Into<ExecutionProviderDispatch>,
{
    BuiltIn {
        name: E::NAME,
        is_there: E::is_available,
        device,
        with_settings: |own, provider| with_options(E::default(), own, provider),
    }
}

/// A provider that is set up by a function.
const fn by_function<E: ep::ExecutionProvider>(
    with_settings: fn(&BuiltIn, &ExecutionProvider) -> Result<ExecutionProviderDispatch, String>,
) -> BuiltIn {
    BuiltIn {
        name: E::NAME,
        is_there: E::is_available,
        device: Some("device_id"),
        with_settings,
    }
}

/// Those of [`WORDS`](crate::provider::WORDS).
const BUILT_IN: [BuiltIn; 14] = [
    // By default, products of f32 are taken in TF32, which keeps 10 bits of each factor.
    by_function::<ep::CUDA>(|own, provider| {
        with_options(ep::CUDA::default().with_tf32(false), own, provider)
    }),
    by_options::<ep::TensorRT>(Some("device_id")),
    by_options::<ep::NVRTX>(Some("device_id")),
    by_function::<ep::DirectML>(|_, provider| directml(provider)),
    by_options::<ep::CoreML>(None),
    by_options::<ep::OpenVINO>(None),
    by_function::<ep::MIGraphX>(|_, provider| migraphx(provider)),
    by_options::<ep::ROCm>(Some("device_id")),
    by_options::<ep::WebGPU>(Some("deviceId")),
    by_options::<ep::QNN>(Some("device_id")),
    by_options::<ep::Vitis>(None),
    by_options::<ep::CANN>(Some("device_id")),
    by_options::<ep::OneDNN>(None),
    by_options::<ep::XNNPACK>(None),
];

/// A provider that the library was built with.
fn built_in(name: &str) -> Option<&'static BuiltIn> {
    let own = BUILT_IN.iter().find(|own| own.name == name)?;
    (own.is_there)().unwrap_or(false).then_some(own)
}

fn with_options<E>(
    mut built: E,
    own: &BuiltIn,
    provider: &ExecutionProvider,
) -> Result<ExecutionProviderDispatch, String>
where
    E: ArbitrarilyConfigurableExecutionProvider + Into<ExecutionProviderDispatch>,
{
    if let Some(number) = provider.device {
        let key = own
            .device
            .ok_or("it takes no number of a device, only options")?;
        built = built.with_arbitrary_config(key, number);
    }
    for (key, value) in &provider.options {
        built = built.with_arbitrary_config(key, value);
    }
    Ok(built.into())
}

/// DirectML, which takes two options besides the device.
fn directml(provider: &ExecutionProvider) -> Result<ExecutionProviderDispatch, String> {
    let mut built = ep::DirectML::default();
    if let Some(device) = provider.device {
        built = built.with_device_id(number(device)?);
    }
    for (key, value) in &provider.options {
        built = match (&**key, &**value) {
            ("performance_preference", "default") => built,
            ("performance_preference", "high_performance") => {
                built.with_performance_preference(PerformancePreference::HighPerformance)
            }
            ("performance_preference", "minimum_power") => {
                built.with_performance_preference(PerformancePreference::MinimumPower)
            }
            ("device_filter", "gpu") => built.with_device_filter(DeviceFilter::Gpu),
            ("device_filter", "npu") => built.with_device_filter(DeviceFilter::Npu),
            ("device_filter", "any") => built.with_device_filter(DeviceFilter::Any),
            _ => return Err(format!("it takes no option {key}={value}")),
        };
    }
    Ok(built.into())
}

/// MIGraphX, which takes a precision besides the device.
fn migraphx(provider: &ExecutionProvider) -> Result<ExecutionProviderDispatch, String> {
    let mut built = ep::MIGraphX::default();
    if let Some(device) = provider.device {
        built = built.with_device_id(number(device)?);
    }
    for (key, value) in &provider.options {
        built = match (&**key, &**value) {
            ("migraphx_fp16_enable", "1") => built.with_fp16(true),
            ("migraphx_fp8_enable", "1") => built.with_fp8(true),
            _ => return Err(format!("it takes no option {key}={value}")),
        };
    }
    Ok(built.into())
}

fn number(device: u32) -> Result<i32, String> {
    i32::try_from(device).map_err(|_| "there is no such device".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::WORDS;

    #[test]
    fn every_word_has_a_provider_of_its_name() {
        let (mut own, mut named) = (BUILT_IN.map(|own| own.name), WORDS.map(|(_, name)| name));
        own.sort_unstable();
        named.sort_unstable();
        assert_eq!(own, named);
    }

    #[test]
    fn devices_and_options_that_are_not_taken_are_named() {
        for (text, why) in [
            ("openvino:1", "it takes no number of a device"),
            (
                "directml,device_filter=tpu",
                "it takes no option device_filter=tpu",
            ),
            ("migraphx,unknown=1", "it takes no option unknown=1"),
            ("directml:4000000000", "there is no such device"),
        ] {
            let Ok(crate::Provider::Other(provider)) = text.parse() else {
                panic!("{text}");
            };
            let own = BUILT_IN
                .iter()
                .find(|own| own.name == provider.name)
                .unwrap();
            let error = (own.with_settings)(own, &provider).err();
            assert!(error.is_some_and(|error| error.contains(why)), "{text}");
        }
        for text in [
            "cuda:1,gpu_mem_limit=1",
            "openvino,device_type=GPU",
            "webgpu:2",
            "directml:1,performance_preference=minimum_power",
            "migraphx:1,migraphx_fp16_enable=1",
        ] {
            let Ok(crate::Provider::Other(provider)) = text.parse() else {
                panic!("{text}");
            };
            let own = BUILT_IN
                .iter()
                .find(|own| own.name == provider.name)
                .unwrap();
            assert!((own.with_settings)(own, &provider).is_ok(), "{text}");
        }
    }
}
