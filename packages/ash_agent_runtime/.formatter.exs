[
  inputs: [
    "{mix,.formatter}.exs",
    "{lib,test,test_support}/**/*.{ex,exs}"
  ]
]
