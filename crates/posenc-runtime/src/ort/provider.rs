//! Execution providers in sessions of ONNX Runtime.

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
        if let Some(file) = provider.options.get(LIBRARY) {
            let registered = self.environment.register_ep_library(&provider.name, file);
            registered.map_err(|e| says(e.message()))?;
        } else if let Some(built) = dispatch(provider) {
            let built = built.map_err(unavailable)?;
            // Without the error, sessions would silently run on the processor.
            let built = built.error_on_failure();
            return (builder.with_execution_providers([built])).map_err(|e| says(e.message()));
        }
        let name = &provider.name;
        let own = |d: &::ort::device::Device<'_>| d.ep().is_ok_and(|ep| ep == name);
        let devices = self.environment.devices().filter(own);
        let at = provider.device.map_or(0, |device| device as usize);
        let mut device = devices.skip(at).take(1).peekable();
        if device.peek().is_none() {
            let known = self.device_providers();
            return Err(unavailable(match known.contains(name) {
                true => "there is no such device".to_owned(),
                false => format!("{NOT_BUILT}: {}", self.path.display()),
            }));
        }
        let options = provider.options.iter().filter(|(key, _)| *key != LIBRARY);
        let options: Vec<(String, String)> = options
            .map(|(key, value)| (format!("{name}.{key}"), value.clone()))
            .collect();
        (builder.with_devices(device, Some(&options))).map_err(|e| says(e.message()))
    }

    /// The builder for the processor alone: of itself, the runtime may take a plugin that was loaded.
    pub(super) fn with_processor(&self, builder: SessionBuilder) -> Result<SessionBuilder> {
        if self.device_providers().len() < 2 {
            return Ok(builder);
        }
        let devices = self.environment.devices();
        let own = devices.filter(|device| device.ep().is_ok_and(|ep| ep == PROCESSOR));
        builder.with_devices(own, None).map_err(refused)
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
}

/// A provider that the library was built with, and why its device or options are not taken; `None` where it was not.
fn dispatch(provider: &ExecutionProvider) -> Option<Result<ExecutionProviderDispatch, String>> {
    /// One of those that take options by name, with the option of the device.
    macro_rules! configured {
        ($ep:ty, $device:expr) => {
            configured::<$ep>(<$ep>::default(), provider, $device)
        };
    }
    Some(match &*provider.name {
        // By default, products of f32 are taken in TF32, which keeps 10 bits of each factor.
        "CUDAExecutionProvider" => configured(
            ep::CUDA::default().with_tf32(false),
            provider,
            Some("device_id"),
        )?,
        "TensorrtExecutionProvider" => configured!(ep::TensorRT, Some("device_id"))?,
        "NvTensorRTRTXExecutionProvider" => configured!(ep::NVRTX, Some("device_id"))?,
        "CoreMLExecutionProvider" => configured!(ep::CoreML, None)?,
        "OpenVINOExecutionProvider" => configured!(ep::OpenVINO, None)?,
        "ROCMExecutionProvider" => configured!(ep::ROCm, Some("device_id"))?,
        "WebGpuExecutionProvider" => configured!(ep::WebGPU, Some("deviceId"))?,
        "QNNExecutionProvider" => configured!(ep::QNN, Some("device_id"))?,
        "VitisAIExecutionProvider" => configured!(ep::Vitis, None)?,
        "CANNExecutionProvider" => configured!(ep::CANN, Some("device_id"))?,
        "DnnlExecutionProvider" => configured!(ep::OneDNN, None)?,
        "XnnpackExecutionProvider" => configured!(ep::XNNPACK, None)?,
        "DmlExecutionProvider" => is_built::<ep::DirectML>().then(|| directml(provider))?,
        "MIGraphXExecutionProvider" => is_built::<ep::MIGraphX>().then(|| migraphx(provider))?,
        _ => return None,
    })
}

/// Whether the library was built with a provider.
fn is_built<E: ep::ExecutionProvider>() -> bool {
    E::is_available().unwrap_or(false)
}

fn configured<E>(
    mut built: E,
    provider: &ExecutionProvider,
    device: Option<&str>,
) -> Option<Result<ExecutionProviderDispatch, String>>
where
    E: ep::ExecutionProvider
        + ArbitrarilyConfigurableExecutionProvider
        + Into<ExecutionProviderDispatch>,
{
    if !is_built::<E>() {
        return None;
    }
    match (provider.device, device) {
        (Some(number), Some(key)) => built = built.with_arbitrary_config(key, number),
        (Some(_), None) => {
            return Some(Err(
                "it takes no number of a device, only options".to_owned()
            ));
        }
        (None, _) => {}
    }
    for (key, value) in &provider.options {
        built = built.with_arbitrary_config(key, value);
    }
    Some(Ok(built.into()))
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
