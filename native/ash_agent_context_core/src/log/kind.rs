//! The kinds of tool calls.

use crate::value::Value;

/// Whose form a call has. Every kind has a slot and is answered by the client; the answer goes back in
/// the form of the kind. A provider that does not know the kind gets a function call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CallKind {
    /// A function with an object for arguments.
    #[default]
    Function,
    /// A tool with text for arguments, such as a grammar's.
    Custom,
    /// Shell commands.
    Shell,
    /// A command of the older shell tool.
    LocalShell,
    /// A change of a file.
    ApplyPatch,
    /// Actions on a screen, answered with a screenshot.
    Computer,
    /// The approval that a tool of an MCP server waits for, which the provider itself runs.
    McpApproval,
    /// A search for tools that the client carries out.
    ToolSearch,
}

impl CallKind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Function,
        Self::Custom,
        Self::Shell,
        Self::LocalShell,
        Self::ApplyPatch,
        Self::Computer,
        Self::McpApproval,
        Self::ToolSearch,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Custom => "custom",
            Self::Shell => "shell",
            Self::LocalShell => "local_shell",
            Self::ApplyPatch => "apply_patch",
            Self::Computer => "computer",
            Self::McpApproval => "mcp_approval",
            Self::ToolSearch => "tool_search",
        }
    }

    /// The kind of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// Returns whether it is a function, which every provider knows.
    #[must_use]
    pub const fn is_function(self) -> bool {
        matches!(self, Self::Function)
    }

    /// The tool's name where a call of this kind brings none: there is but one tool of the kind.
    pub(crate) const fn tool(self) -> Option<&'static str> {
        match self {
            Self::Function | Self::Custom | Self::McpApproval => None,
            _ => Some(self.name()),
        }
    }

    /// The kind that a call's field names. A function needs no name, and what is none of ours is the
    /// application's own.
    pub(crate) fn of(value: &Value) -> Option<Self> {
        let kind = Self::from_name(value.as_name()?)?;
        (!kind.is_function()).then_some(kind)
    }
}
