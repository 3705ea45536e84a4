//! The size of images in a configuration.

use serde_json::{Map, Value, json};

const KEY: &str = "image_size";

/// Images of another size, `[height, width]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Images {
    /// Before.
    pub(super) old: [usize; 2],
    /// After.
    pub(super) new: [usize; 2],
}

impl Images {
    /// The new size in the config and in its `vision_config`, where it is the old one; whether one of
    /// them has the size now.
    pub(super) fn edit(&self, config: &mut Map<String, Value>) -> bool {
        let own = config.get_mut(KEY).is_some_and(|size| self.resize(size));
        let vision = config.get_mut("vision_config");
        let vision = vision.and_then(|vision| vision.get_mut(KEY));
        vision.is_some_and(|size| self.resize(size)) || own
    }

    /// What a user should know where no key is the size.
    pub(super) fn warning(&self) -> String {
        let [old, new] = [self.old, self.new].map(|[height, width]| format!("{height}x{width}"));
        format!("no {KEY} of the config is the old size ({old}), so none is the new one ({new})")
    }

    fn resize(&self, size: &mut Value) -> bool {
        if read(size) == Some(self.old) {
            self.write(size);
        }
        read(size) == Some(self.new)
    }

    /// The new size, in the form of the old one.
    fn write(&self, size: &mut Value) {
        let [height, width] = self.new;
        match size {
            Value::Object(sides) => {
                sides.insert("height".to_owned(), height.into());
                sides.insert("width".to_owned(), width.into());
            }
            Value::Number(_) if height == width => *size = height.into(),
            other => *other = json!([height, width]),
        }
    }
}

/// Height and width of a number, a list or an object.
fn read(size: &Value) -> Option<[usize; 2]> {
    let number = |value: &Value| usize::try_from(value.as_u64()?).ok();
    match size {
        Value::Array(sides) => match &sides[..] {
            [height, width] => Some([number(height)?, number(width)?]),
            _ => None,
        },
        Value::Object(sides) => Some([number(sides.get("height")?)?, number(sides.get("width")?)?]),
        side => number(side).map(|side| [side, side]),
    }
}
