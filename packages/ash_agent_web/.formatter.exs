[
  inputs: ["{mix,.formatter}.exs", "{lib,test}/**/*.{ex,exs}"],
  # Those of Phoenix.Component.
  locals_without_parens: [attr: 2, attr: 3, slot: 1, slot: 2, slot: 3]
]
